// The operation moe_ffn on the threads of a team (ops/moe_ffn.h): every thread groups the rows for itself; then each makes part of h, dealt
// over experts and columns; then, behind a barrier, part of the columns of y for all tokens.
#include <algorithm>
#include <bit>
#include <vector>

#include "base/checked.h"
#include "ops/moe_routing.h"
#include "ops/multiplied_rows.h"
#include "ops/operations.h"
#include "ops/quantize_row.h"

namespace lockstep {
namespace {

static_assert(kColumnsOfFold == kColumnUnit);

// Rows of one expert that are multiplied at once: as many as share a piece of weights that a kernel takes apart, and within the
// second-level cache.
constexpr int64_t kMostGathered = 120;
constexpr int64_t kGatheredBytes = 1 << 20;
// Leaves that are held at once, where one segment of all rows is not more.
constexpr int64_t kLeafFloats = 1 << 17;

// Rows to multiply, as numbers or as codes.
struct MoeRows {
  bool coded = false;
  int64_t k = 0;
  float* x = nullptr;  // [rows, k]
  QuantizedRows q;

  static int64_t CodedWidth(int64_t k) { return RoundUp(k, kBlockK); }
  void Take(Pieces& pieces, int64_t rows) {
    if (coded) {
      const int64_t bytes = QuantizedRows::Bytes(rows, CodedWidth(k));
      q = QuantizedRows::At(pieces.Take<std::byte>(bytes), rows, CodedWidth(k));
    } else {
      x = pieces.Take<float>(rows * k);
    }
  }
  MoeRows From(int64_t row) const {
    return coded ? MoeRows{true, k, nullptr, q.From(row)} : MoeRows{false, k, x + row * k, {}};
  }
  void Copy(int64_t to, const MoeRows& other, int64_t from) const {
    if (coded) {
      q.CopyRow(to, other.q, from);
    } else {
      std::copy_n(other.x + from * k, k, x + to * k);
    }
  }
};

// The operands by what they are.
struct MoeOperands {
  MoeRows x;
  Rows ids, weights;
  Experts gate, up, down;
  std::span<const float> gate_bias, up_bias, down_bias;

  MoeOperands(const MoeSettings& settings, std::span<const Operand> in) {
    const auto* codes = std::get_if<QuantizedRows>(&in[0]);
    x.coded = codes != nullptr;
    if (x.coded) {
      x.q = *codes;
      x.k = codes->k;
    } else {
      x.x = std::get<Rows>(in[0]).data;
      x.k = std::get<Rows>(in[0]).width;
    }
    ids = std::get<Rows>(in[1]);
    weights = std::get<Rows>(in[2]);
    size_t at = 3;
    if (settings.gated) gate = std::get<Experts>(in[at++]);
    up = std::get<Experts>(in[at++]);
    down = std::get<Experts>(in[at++]);
    if (!settings.biases) return;
    auto vector = [&] { return std::get<std::span<const float>>(in[at++]); };
    if (settings.gated) gate_bias = vector();
    up_bias = vector();
    down_bias = vector();
  }
};

// One step on one thread.
class MoeStep {
 public:
  // scratch: this thread's, shared: the team's; null only to count them.
  MoeStep(const MoeSettings& settings, const MoePart& part, std::span<const Operand> in,
          int64_t tokens, std::byte* scratch, std::byte* shared);
  size_t scratch_bytes() const { return scratch_bytes_; }
  size_t shared_bytes() const { return shared_bytes_; }

  void Run(const StepContext& step);
  // After Run on all threads: x by expert for gate and up, h for down.
  void ShowMultiplied(const StepContext& step, FunctionRef<MultipliedRowFn> see);

 private:
  void MakeHidden(const StepContext& step) const;
  void MakeHiddenOf(const StepContext& step, int64_t expert, int64_t first_unit,
                    int64_t last_unit) const;
  void Activate(const StepContext& step, int64_t expert, int64_t row, int64_t column,
                int64_t columns, float* gate, float* up) const;
  void MakeOutput(const StepContext& step, int64_t unit) const;
  void MakeLeaves(const StepContext& step, int64_t unit, LeafRange segments) const;
  void MeetInTree(const StepContext& step, int64_t index, bool last) const;
  void Multiply(const StepContext& step, const PackedMatrix& w, const MoeRows& x, int64_t rows,
                int64_t unit, MatMulTask task) const;

  const MoeSettings& settings_;
  MoeOperands in_;
  int64_t f_ = 0, n_ = 0;  // f_: here
  int64_t first_segment_ = 0, segments_ = 0, segment_length_ = 0;
  bool adds_bias_ = false;
  std::vector<LeafRange> expert_roots_, segment_roots_;
  MoeRouting routing_;
  MoeRows hidden_;  // [rows, f], the team's
  std::byte* matmul_ = nullptr;
  MoeRows gathered_;
  float *gate_ = nullptr, *up_ = nullptr;      // [gathered, 32]
  float* leaves_ = nullptr;                    // [segments at once, rows, 32]
  float *sums_ = nullptr, *levels_ = nullptr;  // [tokens, 32], [kTreeLevels, tokens, 32]
  int64_t leaf_floats_ = 0, most_gathered_ = 0;
  size_t scratch_bytes_ = 0, shared_bytes_ = 0;
};

MoeStep::MoeStep(const MoeSettings& settings, const MoePart& part, std::span<const Operand> in,
                 int64_t tokens, std::byte* scratch, std::byte* shared)
    : settings_(settings), in_(settings, in) {
  if (in_.down.empty() || in_.down[0].k == 0) return;
  const PackedMatrix& down = in_.down[0];
  f_ = down.k, n_ = down.n;
  const int64_t experts = std::ssize(in_.down), all = part.all_experts == 0 ? experts : part.all_experts;
  const int64_t first_expert = part.experts.first;
  segment_length_ = part.f.length != 0 ? part.f.length : MoeSegmentLength(*down.format, f_);
  segments_ = CeilDiv(f_, segment_length_);
  const LeafRange segments = part.cut() ? part.f.leaves : LeafRange{0, segments_};
  first_segment_ = segments.first;
  adds_bias_ = settings.biases && first_segment_ == 0;
  expert_roots_ = SubtreeRoots(first_expert, first_expert + experts, all);
  if (part.all_experts == 0) {
    segment_roots_ =
        SubtreeRoots(segments.first, segments.last, part.cut() ? part.f.total : segments_);
  } else {
    for (int64_t s = segments.first; s < segments.last; ++s) segment_roots_.push_back({s, s + 1});
  }
  const int64_t slots = tokens * in_.ids.width;
  routing_ = {tokens, in_.ids.width, first_expert, experts, all, expert_roots_};

  Pieces own(scratch);
  routing_.Take(own);
  matmul_ = own.Take<std::byte>(kMatMulScratchBytes);
  const size_t phase = own.used();
  gathered_ = {in_.x.coded, in_.x.k, nullptr, {}};
  most_gathered_ =
      std::clamp<int64_t>(kGatheredBytes / (in_.x.k * (in_.x.coded ? 2 : 4)), 8, kMostGathered);
  gathered_.Take(own, most_gathered_);
  gate_ = own.Take<float>(most_gathered_ * kColumnUnit);
  up_ = own.Take<float>(most_gathered_ * kColumnUnit);
  scratch_bytes_ = own.used();
  // What made h is not needed any more when y is made.
  Pieces later(scratch == nullptr ? nullptr : scratch + phase);
  leaf_floats_ = std::max(slots * kColumnUnit, kLeafFloats);
  leaves_ = later.Take<float>(leaf_floats_);
  sums_ = later.Take<float>(tokens * kColumnUnit);
  levels_ = later.Take<float>(kTreeLevels * tokens * kColumnUnit);
  scratch_bytes_ = std::max(scratch_bytes_, phase + later.used());

  Pieces team(shared);
  hidden_ = {down.quantized(), f_, nullptr, {}};
  hidden_.Take(team, slots);
  shared_bytes_ = team.used();
}

void MoeStep::Run(const StepContext& step) {
  if (f_ == 0) return;
  routing_.Fill(in_.ids.data, in_.weights.data, [&](int64_t token) {
    step.faults->Report(step.row_index[static_cast<size_t>(token)], step.step);
  });
  MakeHidden(step);
  if (step.team != nullptr) step.team->Barrier();
  const WorkRange share = step.Share(n_, kColumnUnit);
  for (int64_t column = share.begin; column < share.end; column += kColumnUnit)
    MakeOutput(step, column / kColumnUnit);
}

void MoeStep::ShowMultiplied(const StepContext& step, FunctionRef<MultipliedRowFn> see) {
  if (f_ == 0) return;
  routing_.Fill(in_.ids.data, in_.weights.data, [](int64_t) {});
  const size_t up = settings_.gated ? 4 : 3;
  std::vector<float> buffer;
  for (int64_t e = 0; e < routing_.experts; ++e) {
    for (int64_t row = routing_.first_row[e]; row < routing_.first_row[e + 1]; ++row) {
      const auto x = MultipliedRow(step.in[0], routing_.token[row], 0, in_.up[0].k, buffer);
      for (size_t weight = 3; weight <= up; ++weight) see(weight, routing_.first_expert + e, x);
      const auto h = hidden_.coded ? MultipliedRow(hidden_.q, row, 0, f_, buffer)
                                   : std::span<const float>(hidden_.x + row * f_, static_cast<size_t>(f_));
      see(up + 1, routing_.first_expert + e, h);
    }
  }
}

void MoeStep::MakeHidden(const StepContext& step) const {
  // A row is worth a unit of time, taking an expert's weights apart or reading them several.
  constexpr int64_t kWeightsCost = 8;
  const int64_t units = CeilDiv(f_, kColumnUnit);
  int64_t busy = 0;
  for (int64_t e = 0; e < routing_.experts; ++e)
    busy += routing_.first_row[e + 1] > routing_.first_row[e];
  const WorkRange share = step.Share(units * (routing_.rows() + busy * kWeightsCost));
  int64_t base = 0;
  for (int64_t e = 0; e < routing_.experts; ++e) {
    const int64_t rows = routing_.first_row[e + 1] - routing_.first_row[e];
    if (rows == 0) continue;
    const int64_t cost = rows + kWeightsCost;
    auto unit_at = [&](int64_t place) {
      return place <= base ? 0 : std::min(units, CeilDiv(place - base, cost));
    };
    MakeHiddenOf(step, e, unit_at(share.begin), unit_at(share.end));
    base += units * cost;
  }
}

void MoeStep::MakeHiddenOf(const StepContext& step, int64_t expert, int64_t first_unit,
                           int64_t last_unit) const {
  if (first_unit >= last_unit) return;
  const int64_t last_row = routing_.first_row[expert + 1];
  for (int64_t row = routing_.first_row[expert]; row < last_row; row += most_gathered_) {
    const int64_t rows = std::min(most_gathered_, last_row - row);
    MoeRows x = gathered_;
    if (rows == 1) {
      x = in_.x.From(routing_.token[row]);
    } else {
      for (int64_t i = 0; i < rows; ++i) x.Copy(i, in_.x, routing_.token[row + i]);
    }
    for (int64_t unit = first_unit; unit < last_unit; ++unit) {
      MatMulTask task{};
      if (settings_.gated) {
        task.y = gate_;
        Multiply(step, in_.gate[static_cast<size_t>(expert)], x, rows, unit, task);
      }
      task.y = up_;
      Multiply(step, in_.up[static_cast<size_t>(expert)], x, rows, unit, task);
      const int64_t column = unit * kColumnUnit, columns = std::min(kColumnUnit, f_ - column);
      for (int64_t i = 0; i < rows; ++i)
        Activate(step, expert, row + i, column, columns, gate_ + i * kColumnUnit,
                 up_ + i * kColumnUnit);
    }
  }
}

void MoeStep::Activate(const StepContext& step, int64_t expert, int64_t row, int64_t column,
                       int64_t columns, float* gate, float* up) const {
  const Kernels& kernels = step.kernels;
  const float weight = routing_.weight[row];
  auto shift = [&](float* v, std::span<const float> bias) {
    if (settings_.weigh_input) kernels.scale(v, weight, columns, v);
    if (settings_.biases) kernels.add(v, bias.data() + expert * f_ + column, columns, v);
  };
  shift(up, in_.up_bias);
  if (settings_.gated) {
    shift(gate, in_.gate_bias);
    kernels.activate_gated(settings_.gating, gate, up, columns, gate);
  } else {
    kernels.activate(settings_.gating.activation, up, columns, gate);
  }
  if (!settings_.weigh_input) kernels.scale(gate, weight, columns, gate);
  if (!hidden_.coded) {
    std::copy_n(gate, columns, hidden_.x + row * f_ + column);
    return;
  }
  if (!kernels.quantize_row(gate, columns, RowPart(hidden_.q, row, column))) {
    step.faults->Report(step.row_index[static_cast<size_t>(routing_.token[row])], step.step);
  }
}

void MoeStep::MakeOutput(const StepContext& step, int64_t unit) const {
  const Rows& y = step.out_rows();
  const int64_t column = unit * kColumnUnit, columns = std::min(kColumnUnit, n_ - column);
  const int64_t leaf_rows = std::max<int64_t>(routing_.rows(), 1) * kColumnUnit;
  const int64_t at_once = std::max<int64_t>(leaf_floats_ / leaf_rows, 1);
  size_t root = 0;
  int64_t out = 0;
  for (int64_t begin = 0; begin < segments_; begin += at_once) {
    const LeafRange run = {begin, std::min(begin + at_once, segments_)};
    MakeLeaves(step, unit, run);
    for (int64_t s = run.first; s < run.last; ++s) {
      const int64_t index = first_segment_ + s - segment_roots_[root].first;
      const bool last = first_segment_ + s + 1 == segment_roots_[root].last;
      for (size_t experts = 0; experts < expert_roots_.size(); ++experts) {
        ExpertFold fold = routing_.Fold(static_cast<int64_t>(experts));
        fold.leaves = leaves_ + (s - begin) * leaf_rows;
        fold.y = sums_;
        step.kernels.fold_experts(fold);
        MeetInTree(step, index, last);
        if (!last) continue;
        for (int64_t t = 0; t < routing_.tokens; ++t)
          std::copy_n(sums_ + t * kColumnUnit, columns,
                      y.data + (out * routing_.tokens + t) * n_ + column);
        ++out;
      }
      root += last;
    }
  }
}

// The leaves of all rows in a run of the segments here.
void MoeStep::MakeLeaves(const StepContext& step, int64_t unit, LeafRange segments) const {
  const int64_t column = unit * kColumnUnit, columns = std::min(kColumnUnit, n_ - column);
  for (int64_t e = 0; e < routing_.experts; ++e) {
    const int64_t first = routing_.first_row[e], rows = routing_.first_row[e + 1] - first;
    if (rows == 0) continue;
    MatMulTask task{};
    task.y = leaves_ + first * kColumnUnit;
    task.root_stride = std::max<int64_t>(routing_.rows(), 1) * kColumnUnit;
    task.segment = segment_length_;
    task.segment_begin = segments.first;
    task.segment_end = segments.last;
    task.apart = true;
    Multiply(step, in_.down[static_cast<size_t>(e)], hidden_.From(first), rows, unit, task);
    if (!adds_bias_ || segments.first != 0) continue;
    for (int64_t row = first; row < first + rows; ++row) {
      float* leaf = leaves_ + row * kColumnUnit;
      step.kernels.add_scaled(leaf, in_.down_bias.data() + e * n_ + column,
                              settings_.weigh_input ? 1 : routing_.weight[row], columns, leaf);
    }
  }
}

// The sums of segment `index` of a root join those before it, by a binary counter; the last one ends the root.
void MoeStep::MeetInTree(const StepContext& step, int64_t index, bool last) const {
  const int64_t size = routing_.tokens * kColumnUnit;
  const int filled = std::popcount(static_cast<uint64_t>(index));
  const int meets = last ? filled : std::countr_one(static_cast<uint64_t>(index));
  for (int i = 1; i <= meets; ++i)
    step.kernels.add(levels_ + (filled - i) * size, sums_, size, sums_);
  if (!last) std::copy_n(sums_, size, levels_ + (filled - meets) * size);
}

void MoeStep::Multiply(const StepContext& step, const PackedMatrix& w, const MoeRows& x,
                       int64_t rows, int64_t unit, MatMulTask task) const {
  constexpr int64_t kPanels = kColumnUnit / kPanelRows;
  PackedMatrix view = w;
  view.data += unit * kPanels * w.panel_bytes();
  view.n = std::min(kColumnUnit, w.n - unit * kColumnUnit);
  task.w = &view;
  task.q = x.q;
  task.x = x.x;
  task.x_stride = x.k;
  task.tokens = rows;
  task.y_stride = kColumnUnit;
  task.panel_end = view.panels();
  task.scratch = matmul_;
  step.kernels.matmul(task);
}

class MoeFfn final : public Operation {
 public:
  MoeFfn(const MoeSettings& settings, const MoePart& part)
      : settings_(settings), part_(part), rule_(MoeFfnRule(settings, part.cut())) {}
  std::string_view name() const override { return "moe_ffn"; }
  std::string_view rule() const override { return rule_; }
  std::string attributes() const override {
    std::string text = fmt::format(
        "{}{}{}{}", ActivationName(settings_.gating.activation), settings_.gated ? "" : " ungated",
        settings_.biases ? " biased" : "", settings_.weigh_input ? " weigh=input" : "");
    const LeafRange& leaves = part_.all_experts == 0 ? part_.f.leaves : part_.experts;
    if (part_.cut()) {
      text += fmt::format(" {}={}..{}/{}", part_.all_experts == 0 ? "leaves" : "experts", leaves.first,
                          leaves.last, part_.all_experts == 0 ? part_.f.total : part_.all_experts);
    }
    return text;
  }
  FactorRule::OwnAxes own_axes() const override {
    if (!part_.cut()) return {};
    const LeafRange &f = part_.f.leaves, &experts = part_.experts;
    const auto roots = part_.all_experts == 0
                           ? std::ssize(SubtreeRoots(f.first, f.last, part_.f.total))
                           : part_.f.total * std::ssize(SubtreeRoots(experts.first, experts.last,
                                                                     part_.all_experts));
    return {{'p', Axis{'p', roots}}};
  }
  SumLeaves sum_leaves(char factor, std::span<const Shape> operands,
                       std::span<const Format* const> formats) const override {
    const size_t down = settings_.gated ? 5 : 4;
    if ((factor != 'f' && factor != 'e') || formats[down] == nullptr) return {};
    const int64_t f = operands[down][2].size, length = MoeSegmentLength(*formats[down], f);
    if (factor == 'f') return {f, length >= f ? 0 : length};
    // Segments outside, experts inside.
    const int64_t experts = operands[down][0].size, segments = CeilDiv(f, length);
    const auto stride = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(experts)));
    return {experts, segments * stride <= kMaxLeaves ? 1 : 0, segments, stride};
  }
  OperationPtr part_of_sum(const SumPart& part) const override {
    const SumLeaves& sum = part.sum;
    if (part.factor == 'f') return MakeMoeFfn(settings_, {{}, 0, {part.leaves, sum.total(), sum.length}});
    // A segment's length follows from the weights, which are whole.
    return MakeMoeFfn(settings_, {part.leaves, sum.size, {{0, sum.repeats}, sum.repeats, 0}});
  }
  OperandKind operand(size_t i) const override {
    const size_t matrices = settings_.gated ? 3 : 2;
    return i < 3              ? OperandKind::kRows
           : i < 3 + matrices ? OperandKind::kExperts
                              : OperandKind::kVector;
  }
  std::vector<size_t> multiplied_by(size_t i) const override {
    if (i != 0) return {};
    return settings_.gated ? std::vector<size_t>{3, 4} : std::vector<size_t>{3};
  }
  Split split() const override { return Split::kColumns; }
  bool meets() const override { return true; }
  size_t scratch_bytes(std::span<const Operand> in, int64_t tokens) const override {
    return MoeStep(settings_, part_, in, tokens, nullptr, nullptr).scratch_bytes();
  }
  size_t shared_bytes(std::span<const Operand> in, int64_t tokens) const override {
    return MoeStep(settings_, part_, in, tokens, nullptr, nullptr).shared_bytes();
  }
  void Run(const StepContext& step) const override {
    MoeStep(settings_, part_, step.in, step.tokens(), step.scratch.data(), step.shared.data())
        .Run(step);
  }
  void ShowMultiplied(const StepContext& step, FunctionRef<MultipliedRowFn> see) const override {
    MoeStep(settings_, part_, step.in, step.tokens(), step.scratch.data(), step.shared.data())
        .ShowMultiplied(step, see);
  }

 private:
  MoeSettings settings_;
  MoePart part_;
  std::string rule_;
};

}  // namespace

OperationPtr MakeMoeFfn(const MoeSettings& settings, const MoePart& part) {
  return std::make_shared<MoeFfn>(settings, part);
}

}  // namespace lockstep
