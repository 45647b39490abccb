#include "ops/collective.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMostTerms = 8;

// "tbcd" for a shape of four axes: a letter for each, the first of them t.
std::string Letters(const Shape& shape) {
  std::string letters = "t";
  for (size_t i = 1; i < shape.rank(); ++i) letters += static_cast<char>('a' + i);
  return letters;
}

// The axes of a shape behind t as an operation's own.
FactorRule::OwnAxes OwnAxesOf(const Shape& shape) {
  const std::string letters = Letters(shape);
  FactorRule::OwnAxes own;
  for (size_t i = 1; i < shape.rank(); ++i) own.emplace_back(letters[i], shape[i]);
  return own;
}

// A rule that makes `to` of an operand with the axes of `from`: those that differ are the operation's own. Without `from`, of tokens.
std::string RuleTo(const Shape* from, const Shape& to, FactorRule::OwnAxes& own) {
  if (from == nullptr) {
    own = OwnAxesOf(to);
    return "t -> " + Letters(to);
  }
  LOCKSTEP_CHECK(from->rank() == to.rank(), "{} to {}", from->ToString(), to.ToString());
  std::string in = Letters(*from), out = in;
  for (size_t i = 1; i < to.rank(); ++i) {
    if ((*from)[i].size == to[i].size) continue;
    in.insert(in.find(out[i]) + 1, "!");
    out[i] = static_cast<char>('n' + i);
    own.emplace_back(out[i], to[i]);
  }
  return in + " -> " + out;
}

class Term final : public Operation {
 public:
  explicit Term(int64_t term) : term_(term) {}
  std::string_view name() const override { return "term"; }
  std::string_view rule() const override { return "tp!* -> t*"; }
  std::string attributes() const override { return fmt::format("{}", term_); }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      std::copy_n(x.row(t) + term_ * y.width, y.width, y.row(t));
    }
  }

 private:
  int64_t term_;
};

class OverRoots final : public Operation {
 public:
  OverRoots(OperationPtr op, size_t sum, int64_t roots)
      : op_(std::move(op)), sum_(sum), roots_(roots) {}
  std::string_view name() const override { return op_->name(); }
  std::string_view rule() const override { return op_->rule(); }
  std::string attributes() const override { return op_->attributes(); }
  OperandKind operand(size_t i) const override { return op_->operand(i); }
  Split split() const override { return Split::kOwn; }
  void Run(const StepContext& step) const override {
    auto root = [&](const Rows& all, int64_t i) {
      const int64_t width = all.width / roots_;
      return Rows{all.data + i * step.tokens() * width, width};
    };
    std::vector<Operand> in(step.in.begin(), step.in.end());
    for (int64_t i = 0; i < roots_; ++i) {
      in[sum_] = root(step.in_rows(sum_), i);
      const Operand out = root(step.out_rows(), i);
      StepContext one = step;
      one.in = in;
      one.out = {&out, 1};
      one.split = Split::kTokens;
      op_->Run(one);
    }
  }

 private:
  OperationPtr op_;
  size_t sum_;
  int64_t roots_;
};

class OwnPart final : public Operation {
 public:
  OwnPart(const ColumnRun& columns, const Shape& whole, const Shape& mine) : columns_(columns) {
    rule_ = RuleTo(&whole, mine, own_);
  }
  std::string_view name() const override { return "own_part"; }
  std::string_view rule() const override { return rule_; }
  std::string attributes() const override {
    return fmt::format("{}..{}", columns_.begin, columns_.end);
  }
  FactorRule::OwnAxes own_axes() const override { return own_; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      std::copy_n(x.row(t) + columns_.begin, columns_.size(), y.row(t));
    }
  }

 private:
  ColumnRun columns_;
  std::string rule_;
  FactorRule::OwnAxes own_;
};

}  // namespace

int64_t PartialTerm::roots(size_t rank) const {
  const LeafRange& owned = leaves[rank];
  if (kind != PartialKind::kSum) return owned.first < owned.last ? 1 : 0;
  return std::ssize(sum.Roots(owned));
}

Reduce::Reduce(std::vector<PartialTerm> terms, size_t rank)
    : terms_(std::move(terms)), rank_(rank) {
  LOCKSTEP_CHECK(!terms_.empty() && terms_.size() <= kMostTerms, "{} terms", terms_.size());
  int operands = 0;
  for (const PartialTerm& term : terms_) {
    const int64_t roots = term.roots(rank);
    operand_of_.push_back(roots == 0 ? -1 : operands++);
    if (roots == 0) continue;
    const bool sum = term.kind == PartialKind::kSum;
    rule_ +=
        fmt::format("{}t{}{}*", rule_.empty() ? "" : ", ",
                    sum ? std::string(1, static_cast<char>('a' + operands)) : "", sum ? "!" : "");
  }
  for (const PartialTerm& term : terms_) AddFold(term);
  const Axis all_terms{'p', std::ssize(terms_), std::ssize(terms_)};
  empty_ = operands == 0;
  if (empty_) {
    own_ = OwnAxesOf(terms_[0].shape);
    std::string letters = Letters(terms_[0].shape);
    if (terms_.size() > 1) letters.insert(1, "z");
    rule_ = "t -> " + letters;
  } else {
    rule_ += terms_.size() == 1 ? " -> t*" : " -> tz*";
  }
  if (terms_.size() > 1) own_.emplace_back('z', all_terms);
}

void Reduce::AddFold(const PartialTerm& term) {
  const bool sum = term.kind == PartialKind::kSum;
  std::vector<int32_t> counts;
  std::vector<std::pair<LeafRange, RootPlace>> roots;
  for (size_t rank = 0; rank < term.leaves.size(); ++rank) {
    counts.push_back(static_cast<int32_t>(term.roots(rank)));
    if (!sum) continue;
    int32_t own = 0;
    for (const LeafRange& root : term.sum.Roots(term.leaves[rank])) {
      roots.push_back({root, {static_cast<int32_t>(rank), own++}});
    }
  }
  std::ranges::stable_sort(roots, {}, [](const auto& root) { return root.first.first; });
  rank_roots_.push_back(std::move(counts));
  folds_.emplace_back();
  orders_.emplace_back();
  if (!sum) return;
  std::vector<LeafRange> ascending;
  for (const auto& [root, place] : roots) {
    ascending.push_back(root);
    orders_.back().push_back(place);
  }
  folds_.back().emplace(ascending, term.sum.total());
}

std::string Reduce::attributes() const {
  std::string text;
  for (size_t i = 0; i < terms_.size(); ++i) {
    const LeafRange& owned = terms_[i].leaves[rank_];
    text += fmt::format("{}{} {}..{} of {}", text.empty() ? "" : ", ", PartialName(terms_[i].kind),
                        owned.first, owned.last, terms_[i].sum.count());
  }
  return text;
}

OperandKind Reduce::operand(size_t) const {
  return empty_ ? OperandKind::kTokens : OperandKind::kRows;
}

void Reduce::Run(const StepContext& step) const {
  const Rows& y = step.out_rows();
  const int64_t width = y.width / std::ssize(terms_);
  std::vector<ReduceTerm> terms;
  for (size_t i = 0; i < terms_.size(); ++i) {
    const int operand = operand_of_[i];
    terms.push_back({operand < 0 ? nullptr : step.in_rows(static_cast<size_t>(operand)).data,
                     rank_roots_[i], orders_[i], folds_[i] ? &*folds_[i] : nullptr,
                     y.data + static_cast<int64_t>(i) * width, width, y.width});
  }
  step.comm->Reduce(step.member, terms, step.tokens(), step.Share(width, kColumnUnit),
                    step.kernels.combine_roots);
}

OperationPtr MakeOverRoots(OperationPtr op, size_t sum, int64_t roots) {
  return std::make_shared<OverRoots>(std::move(op), sum, roots);
}

OperationPtr MakeTerm(int64_t term) { return std::make_shared<Term>(term); }

Gather::Gather(std::vector<ColumnRun> columns, size_t rank, const Shape& mine, const Shape& whole)
    : columns_(std::move(columns)), empty_(columns_[rank].size() == 0) {
  rule_ = RuleTo(empty_ ? nullptr : &mine, whole, own_);
}

OperandKind Gather::operand(size_t) const {
  return empty_ ? OperandKind::kTokens : OperandKind::kRows;
}

void Gather::Run(const StepContext& step) const {
  const Rows& y = step.out_rows();
  std::vector<int64_t> widths;
  for (const ColumnRun& run : columns_) widths.push_back(run.size());
  step.comm->Gather(step.member, empty_ ? nullptr : step.in_rows(0).data, widths, step.tokens(),
                    step.Share(y.width, kColumnUnit), y.data);
}

OperationPtr MakeOwnPart(const ColumnRun& columns, const Shape& whole, const Shape& mine) {
  return std::make_shared<OwnPart>(columns, whole, mine);
}

std::string Send::attributes() const { return fmt::format("to={} tag={}", to_rank_, tag_); }

void Send::Run(const StepContext& step) const {
  const Rows& x = step.in_rows(0);
  const std::span<const float> all(x.data, static_cast<size_t>(step.tokens() * x.width));
  step.comm->Send(*step.team, step.member, to_rank_, tag_, std::as_bytes(all));
}

Receive::Receive(int32_t from_rank, int32_t tag, const Shape& shape)
    : from_rank_(from_rank), tag_(tag) {
  rule_ = RuleTo(nullptr, shape, own_);
}

std::string Receive::attributes() const { return fmt::format("from={} tag={}", from_rank_, tag_); }

void Receive::Run(const StepContext& step) const {
  const Rows& y = step.out_rows();
  const std::span<float> all(y.data, static_cast<size_t>(step.tokens() * y.width));
  step.comm->Receive(*step.team, step.member, from_rank_, tag_, std::as_writable_bytes(all));
}

}  // namespace lockstep
