#include "ops/select_keys.h"

#include <algorithm>
#include <bit>

#include "base/checked.h"

namespace lockstep {

uint64_t TopEntries::Rank(int64_t entry, float score) {
  // Both zeros are one number; the bits of others order as they do once the negative ones are turned round.
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t order = score != score ? 0 : (bits >> 31) != 0 ? ~bits : bits | 0x80000000;
  return uint64_t{~order} << 32 | static_cast<uint64_t>(entry);
}

void TopEntries::AddRank(uint64_t rank) {
  if (rank > worst_) return;
  buffer_[static_cast<size_t>(count_++)] = rank;
  if (count_ == 2 * top_k_) Compact();
}

void TopEntries::Compact() {
  if (count_ <= top_k_) return;
  const auto last = buffer_.begin() + (top_k_ - 1);
  std::nth_element(buffer_.begin(), last, buffer_.begin() + count_);
  worst_ = *last;
  count_ = top_k_;
}

std::span<uint64_t> TopEntries::Finish() {
  Compact();
  return buffer_.first(static_cast<size_t>(count_));
}

namespace {

constexpr int64_t kBlock = kPageTokens;

class SelectKeys final : public Operation {
 public:
  explicit SelectKeys(const SelectKeysSettings& settings) : settings_(settings) {}
  std::string_view name() const override { return "select_keys"; }
  std::string_view rule() const override {
    return settings_.weighted ? kSelectKeysRule : kSelectKeysUnweightedRule;
  }
  std::string attributes() const override {
    std::string text = fmt::format("top={} scale={}", settings_.top_k, settings_.scale);
    if (settings_.pool != 1) text += fmt::format(" pool={}", settings_.pool);
    if (settings_.first != 0) text += fmt::format(" first={}", settings_.first);
    return text;
  }
  FactorRule::OwnAxes own_axes() const override {
    return {{'n', Axis{'s', settings_.width(), settings_.width()}}};
  }
  OperandKind operand(size_t i) const override {
    return i + 1 == operands() ? OperandKind::kState : OperandKind::kRows;
  }
  Split split() const override { return Split::kOwn; }
  bool meets() const override { return true; }
  size_t scratch_bytes(std::span<const Operand> in, int64_t) const override {
    return IndexScratchBytes(*std::get<StateView>(in[operands() - 1]).layout) +
           aligned_buffer_bytes();
  }
  size_t shared_bytes(std::span<const Operand>, int64_t) const override {
    return std::max(size_t{4} << 20, list_bytes());
  }
  void Run(const StepContext& step) const override {
    const int64_t pieces = Pieces(step);
    if (pieces == 1) {
      const WorkRange share = step.Share(step.tokens());
      for (int64_t t = share.begin; t < share.end; ++t) {
        TopEntries top(settings_.top_k, Buffer(step));
        Score(step, t, 0, 1, top);
        Write(step, t, top.Finish());
      }
      return;
    }
    const WorkRange share = step.Share(step.tokens() * pieces);
    for (int64_t item = share.begin; item < share.end; ++item) {
      TopEntries top(settings_.top_k, Buffer(step));
      Score(step, item / pieces, item % pieces, pieces, top);
      const std::span<uint64_t> list = List(step, item), best = top.Finish();
      list[0] = best.size();
      std::ranges::copy(best, list.begin() + 1);
    }
    step.team->Barrier();
    const WorkRange own = step.Share(step.tokens());
    for (int64_t t = own.begin; t < own.end; ++t) {
      TopEntries top(settings_.top_k, Buffer(step));
      for (int64_t item = t * pieces; item < (t + 1) * pieces; ++item) {
        const std::span<uint64_t> list = List(step, item);
        for (uint64_t rank : list.subspan(1, list[0])) top.AddRank(rank);
      }
      Write(step, t, top.Finish());
    }
  }

 private:
  size_t operands() const { return settings_.weighted ? 3 : 2; }
  size_t aligned_buffer_bytes() const {
    return static_cast<size_t>(RoundUp(16 * settings_.top_k, 64));
  }
  // A piece leaves how many it found, and their ranks.
  size_t list_bytes() const { return static_cast<size_t>(settings_.top_k + 1) * sizeof(uint64_t); }

  std::span<uint64_t> Buffer(const StepContext& step) const {
    return {reinterpret_cast<uint64_t*>(step.scratch.data()),
            static_cast<size_t>(2 * settings_.top_k)};
  }
  std::span<uint64_t> List(const StepContext& step, int64_t item) const {
    return {
        reinterpret_cast<uint64_t*>(step.shared.data() + static_cast<size_t>(item) * list_bytes()),
        static_cast<size_t>(settings_.top_k + 1)};
  }

  // Pieces of a token's entries, for batches of fewer tokens than threads.
  int64_t Pieces(const StepContext& step) const {
    if (step.team == nullptr || step.tokens() == 0 || step.tokens() >= step.members) return 1;
    const auto lists = static_cast<int64_t>(step.shared.size() / list_bytes());
    return std::max<int64_t>(1, std::min<int64_t>(step.members, lists / step.tokens()));
  }

  int64_t Entries(const StepContext& step, int64_t t) const {
    return (step.rows.places[static_cast<size_t>(t)].position + 1) / settings_.pool;
  }

  // Scores one of the pieces of token t's entries.
  void Score(const StepContext& step, int64_t t, int64_t piece, int64_t pieces,
             TopEntries& top) const {
    const StateView& state = std::get<StateView>(step.in[operands() - 1]);
    IndexScoresTask task{};
    task.layout = *state.layout;
    task.k_offset = state.k_offset;
    task.pages = step.rows.places[static_cast<size_t>(t)].pages;
    task.q = step.in_rows(0).row(t);
    task.weights = settings_.weighted ? step.in_rows(1).row(t) : nullptr;
    task.heads = step.in_rows(0).width / task.layout.dk;
    task.scale = settings_.scale;
    float scores[kBlock];
    const int64_t entries = Entries(step, t);
    const WorkRange blocks =
        ShareOf(CeilDiv(entries, kBlock), 1, static_cast<int>(piece), static_cast<int>(pieces));
    for (int64_t first = blocks.begin * kBlock; first < blocks.end * kBlock; first += kBlock) {
      const int64_t count = std::min(kBlock, entries - first);
      step.kernels.index_scores(task, first, count, scores,
                                step.scratch.data() + aligned_buffer_bytes());
      for (int64_t i = std::max<int64_t>(0, settings_.first - first); i < count; ++i)
        top.Add(first + i, scores[i]);
    }
  }

  void Write(const StepContext& step, int64_t t, std::span<uint64_t> best) const {
    std::ranges::sort(best, {}, [](uint64_t rank) { return TopEntries::EntryOf(rank); });
    const Rows& out = step.out_rows();
    float* to = out.row(t);
    for (uint64_t rank : best) {
      const int64_t entry = TopEntries::EntryOf(rank);
      if (settings_.entries) {
        *to++ = static_cast<float>(entry);
        continue;
      }
      for (int64_t i = 0; i < settings_.pool; ++i)
        *to++ = static_cast<float>(entry * settings_.pool + i);
    }
    const int64_t position = step.rows.places[static_cast<size_t>(t)].position;
    for (int64_t p = Entries(step, t) * settings_.pool; !settings_.entries && p <= position; ++p) {
      *to++ = static_cast<float>(p);
    }
    std::fill(to, out.row(t) + out.width, -1.0f);
  }

  SelectKeysSettings settings_;
};

}  // namespace

OperationPtr MakeSelectKeys(const SelectKeysSettings& settings) {
  return std::make_shared<SelectKeys>(settings);
}

}  // namespace lockstep
