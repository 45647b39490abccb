#include "ops/operations.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "ops/layer_norm.h"
#include "ops/quantize_row.h"
#include "ops/rms_norm.h"
#include "ops/soft_cap.h"
#include "simd/scalar_math.h"

namespace lockstep {
namespace {

// Operations whose output column c needs column c of their inputs only: y = run(kernels, in.., count).
class Elementwise : public Operation {
 public:
  Split split() const override { return Split::kEither; }
  void Run(const StepContext& step) const override {
    const Rows& y = step.out_rows();
    ForShare(step, y.width, [&](int64_t t, int64_t begin, int64_t end) {
      Apply(step, t, begin, end - begin, y.row(t) + begin);
    });
  }

 protected:
  virtual void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
                     float* y) const = 0;
};

class Add final : public Elementwise {
 public:
  std::string_view name() const override { return "add"; }
  std::string_view rule() const override { return kAddRule; }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    step.kernels.add(step.in_rows(0).row(t) + begin, step.in_rows(1).row(t) + begin, count, y);
  }
};

class Mul final : public Elementwise {
 public:
  std::string_view name() const override { return "mul"; }
  std::string_view rule() const override { return kMulRule; }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    step.kernels.mul(step.in_rows(0).row(t) + begin, step.in_rows(1).row(t) + begin, count, y);
  }
};

class AddBias final : public Elementwise {
 public:
  std::string_view name() const override { return "add_bias"; }
  std::string_view rule() const override { return "t*, * -> t*"; }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kVector;
  }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    const auto bias = std::get<std::span<const float>>(step.in[1]);
    step.kernels.add(step.in_rows(0).row(t) + begin, bias.data() + begin, count, y);
  }
};

class Scale final : public Elementwise {
 public:
  explicit Scale(float factor) : factor_(factor) {}
  std::string_view name() const override { return "scale"; }
  std::string_view rule() const override { return kScaleRule; }
  std::string attributes() const override { return fmt::format("by={}", factor_); }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    step.kernels.scale(step.in_rows(0).row(t) + begin, factor_, count, y);
  }

 private:
  float factor_;
};

class PositionScale final : public Elementwise {
 public:
  PositionScale(float beta, int64_t length) : beta_(beta), length_(length) {}
  std::string_view name() const override { return "position_scale"; }
  std::string_view rule() const override { return kScaleRule; }
  std::string attributes() const override {
    return fmt::format("beta={} length={}", beta_, length_);
  }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    const int64_t turns = step.rows.places[static_cast<size_t>(t)].position / length_;
    const float factor =
        static_cast<float>(1 + double{beta_} * f64::Log(1.0 + static_cast<double>(turns)));
    step.kernels.scale(step.in_rows(0).row(t) + begin, factor, count, y);
  }

 private:
  float beta_;
  int64_t length_;
};

class SoftCapOperation final : public Elementwise {
 public:
  explicit SoftCapOperation(float cap) : cap_(cap) {}
  std::string_view name() const override { return "soft_cap"; }
  std::string_view rule() const override { return kSoftCapRule; }
  std::string attributes() const override { return fmt::format("cap={}", cap_); }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    step.kernels.soft_cap(step.in_rows(0).row(t) + begin, count, cap_, y);
  }

 private:
  float cap_;
};

class Activate final : public Elementwise {
 public:
  explicit Activate(Activation activation) : activation_(activation) {}
  std::string_view name() const override { return "activate"; }
  std::string_view rule() const override { return kActivateRule; }
  std::string attributes() const override { return std::string(ActivationName(activation_)); }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    step.kernels.activate(activation_, step.in_rows(0).row(t) + begin, count, y);
  }

 private:
  Activation activation_;
};

class ActivateGated final : public Elementwise {
 public:
  explicit ActivateGated(const Gating& gating) : gating_(gating) {}
  std::string_view name() const override { return "activate_gated"; }
  std::string_view rule() const override { return kActivateGatedRule; }
  std::string attributes() const override {
    return std::string(ActivationName(gating_.activation));
  }
  void Apply(const StepContext& step, int64_t t, int64_t begin, int64_t count,
             float* y) const override {
    step.kernels.activate_gated(gating_, step.in_rows(0).row(t) + begin,
                                step.in_rows(1).row(t) + begin, count, y);
  }

 private:
  Gating gating_;
};

class Quantize final : public Operation {
 public:
  std::string_view name() const override { return "quantize"; }
  std::string_view rule() const override { return "* -> *"; }
  Split split() const override { return Split::kEither; }
  void Run(const StepContext& step) const override {
    const Rows& x = step.in_rows(0);
    const QuantizedRows& q = std::get<QuantizedRows>(step.out[0]);
    ForShare(step, x.width, [&](int64_t t, int64_t begin, int64_t end) {
      const bool finite =
          step.kernels.quantize_row(x.row(t) + begin, end - begin, RowPart(q, t, begin));
      if (!finite) step.faults->Report(step.row_index[static_cast<size_t>(t)], step.step);
    });
  }
};

class SelectRows final : public Operation {
 public:
  std::string_view name() const override { return "select_rows"; }
  std::string_view rule() const override { return "* -> *"; }
  // It reads rows that other threads wrote.
  Split split() const override { return Split::kOwn; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      std::copy_n(x.row(step.row_index[static_cast<size_t>(t)]), x.width, y.row(t));
    }
  }
};

class Embed final : public Operation {
 public:
  explicit Embed(float scale, int64_t part = -1) : scale_(scale), part_(part) {}
  std::string_view name() const override { return "embed"; }
  std::string_view rule() const override { return part_ < 0 ? "t, v!k! -> tk" : "t, v!l!k! -> tk"; }
  std::string attributes() const override {
    const std::string scale = scale_ == 1 ? "" : fmt::format("scale={}", scale_);
    return part_ < 0 ? scale : fmt::format("{}{}part={}", scale, scale.empty() ? "" : " ", part_);
  }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kTokens : OperandKind::kTable;
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Table& table = std::get<Table>(step.in[1]);
    const Rows& y = step.out_rows();
    const int64_t block = table.format->block, first = part_ < 0 ? 0 : part_ * y.width;
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      const std::byte* row = table.data + step.rows.tokens[static_cast<size_t>(t)] * table.format->RowBytes(table.width);
      const int64_t begin = first / block, end = CeilDiv(first + y.width, block);
      const std::byte* blocks = row + table.format->RowBytes(begin * block);
      if (first % block == 0 && y.width % block == 0) {
        table.format->decode(blocks, end - begin, y.row(t));
      } else {
        float* whole = reinterpret_cast<float*>(step.scratch.data());
        table.format->decode(blocks, end - begin, whole);
        std::copy_n(whole + first % block, y.width, y.row(t));
      }
      if (scale_ != 1) step.kernels.scale(y.row(t), scale_, y.width, y.row(t));
    }
  }
  // Where a part begins or ends inside a block, its blocks are decoded here first.
  size_t scratch_bytes(std::span<const Operand> in, int64_t) const override {
    return part_ < 0 ? 0 : static_cast<size_t>(std::get<Table>(in[1]).width) * sizeof(float);
  }

 private:
  float scale_;
  int64_t part_;
};

class Norm : public Operation {
 public:
  explicit Norm(const NormForm& form) : form_(form) {}
  std::string attributes() const override { return fmt::format("eps={}", form_.eps); }
  std::string_view rule() const override {
    const bool row = form_.over == NormOver::kRow;
    if (form_.biased) return row ? "t*!, *, * -> t*" : kLayerNormRule;
    if (form_.weighted) return row ? "t*!, * -> t*" : kRmsNormRule;
    return row ? "t*! -> t*" : "*d! -> *d";
  }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kVector;
  }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const int64_t d = form_.weighted ? std::ssize(Vector(step, 1)) : form_.over == NormOver::kRow ? x.width : form_.size;
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      for (int64_t at = 0; at < x.width; at += d) Apply(step, x.row(t) + at, d, y.row(t) + at);
    }
  }

 protected:
  static std::span<const float> Vector(const StepContext& step, size_t i) {
    return i < step.in.size() ? std::get<std::span<const float>>(step.in[i]) : std::span<const float>();
  }
  virtual void Apply(const StepContext& step, const float* x, int64_t d, float* y) const = 0;
  NormForm form_;
};

class RmsNorm final : public Norm {
 public:
  using Norm::Norm;
  std::string_view name() const override { return "rms_norm"; }
  void Apply(const StepContext& step, const float* x, int64_t d, float* y) const override {
    step.kernels.rms_norm(x, Vector(step, 1).data(), d, form_.eps, y);
  }
};

class LayerNorm final : public Norm {
 public:
  using Norm::Norm;
  std::string_view name() const override { return "layer_norm"; }
  void Apply(const StepContext& step, const float* x, int64_t d, float* y) const override {
    step.kernels.layer_norm(x, Vector(step, 1).data(), Vector(step, 2).data(), d, form_.eps, y);
  }
};

class Linear final : public Operation {
 public:
  explicit Linear(int64_t cut_unit, const SumPart& part = {}) : cut_unit_(cut_unit), part_(part) {}
  std::string_view name() const override { return "linear"; }
  std::string_view rule() const override {
    return part_.cut() ? "t*, +* -> tp+" : cut_unit_ == 0 ? "t*!, +*! -> t+" : "t*, +* -> t+";
  }
  std::string attributes() const override {
    std::string text = cut_unit_ == 0 ? "" : fmt::format("cut={}", cut_unit_);
    if (part_.cut()) {
      text += fmt::format(" leaves={}..{}/{}", part_.leaves.first, part_.leaves.last,
                          part_.sum.total());
    }
    return text;
  }
  FactorRule::OwnAxes own_axes() const override {
    if (!part_.cut()) return {};
    return {{'p', Axis{'p', std::ssize(part_.sum.Roots(part_.leaves))}}};
  }
  SumLeaves sum_leaves(char factor, std::span<const Shape> operands,
                       std::span<const Format* const> formats) const override {
    if (factor != '*' || formats[1] == nullptr) return {};
    int64_t k = 1;
    for (size_t i = 1; i < operands[0].rank(); ++i) k *= operands[0][i].size;
    return {k, SegmentOf(k, *formats[1])};
  }
  OperationPtr part_of_sum(const SumPart& part) const override {
    return std::make_shared<Linear>(cut_unit_, part);
  }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : OperandKind::kMatrix;
  }
  std::vector<size_t> multiplied_by(size_t i) const override {
    return i == 0 ? std::vector<size_t>{1} : std::vector<size_t>{};
  }
  Split split() const override { return Split::kColumns; }
  size_t scratch_bytes(std::span<const Operand>, int64_t) const override { return kMatMulScratchBytes; }
  void Run(const StepContext& step) const override {
    const PackedMatrix& w = *std::get<const PackedMatrix*>(step.in[1]);
    const Rows& y = step.out_rows();
    const WorkRange share = step.Share(w.n, kColumnUnit);
    if (share.size() == 0) return;
    MatMulTask task{};
    task.w = &w;
    if (w.quantized()) {
      task.q = std::get<QuantizedRows>(step.in[0]);
    } else {
      task.x = step.in_rows(0).data;
      task.x_stride = step.in_rows(0).width;
    }
    task.tokens = step.tokens();
    task.y = y.data;
    task.y_stride = y.width;
    task.segment = SegmentOf(w.k, *w.format);
    if (part_.cut()) {
      task.y_stride = w.n;
      task.root_stride = task.tokens * w.n;
      task.segment = part_.sum.length;
      task.first_leaf = part_.leaves.first;
      task.leaves = part_.sum.total();
    }
    task.panel_begin = share.begin / kPanelRows;
    task.panel_end = CeilDiv(share.end, kPanelRows);
    task.scratch = step.scratch.data();
    step.kernels.matmul(task);
  }

 private:
  int64_t SegmentOf(int64_t k, const Format& format) const {
    if (cut_unit_ == 0) return 0;
    const int64_t block = format.group != 0 ? std::max<int64_t>(format.block, kBlockK) : 1;
    const int64_t segment = SegmentLength(k, std::lcm(cut_unit_, block));
    return segment >= k ? 0 : segment;
  }

  int64_t cut_unit_;
  SumPart part_;  // of a rank
};

class KvAppend final : public Operation {
 public:
  explicit KvAppend(size_t parts) : parts_(parts) {}
  std::string_view name() const override { return "kv_append"; }
  std::string_view rule() const override { return parts_ == 2 ? kKvAppendRule : kKvAppendKeysRule; }
  OperandKind operand(size_t i) const override {
    return i < parts_ ? OperandKind::kRows : OperandKind::kState;
  }
  bool writes_state() const override { return true; }
  Split split() const override { return Split::kTokens; }
  // One head's row, padded: heads are at most 1024 wide.
  size_t scratch_bytes(std::span<const Operand>, int64_t) const override { return 8192; }
  void Run(const StepContext& step) const override {
    const StateView& state = std::get<StateView>(step.in[parts_]);
    const Rows& k = step.in_rows(0);
    const Rows v = parts_ == 2 ? step.in_rows(1) : Rows{};
    const KvAppendTask task{*state.layout, state.k_offset, state.v_offset, k.data,
                            k.width,       v.data,         v.width,        step.rows.places.data(),
                            step.tokens()};
    const WorkRange share = step.Share(step.tokens());
    if (state.layout->pool > 1) return AppendEntries(step, task, share);
    step.kernels.kv_append(task, share.begin, share.end, step.scratch.data());
    // What is cached outlives the batch and may be shared, whatever the weights' formats.
    for (int64_t t = share.begin; t < share.end; ++t) {
      if (AllFinite(k.row(t), k.width) && AllFinite(v.row(t), v.width)) continue;
      step.faults->Report(step.row_index[static_cast<size_t>(t)], step.step);
    }
  }

 private:
  // Tokens that complete a pool write its entry.
  static void AppendEntries(const StepContext& step, KvAppendTask task, WorkRange share) {
    const KvLayout& layout = task.layout;
    for (int64_t t = share.begin; t < share.end; ++t) {
      AttentionRow row = step.rows.places[static_cast<size_t>(t)];
      if ((row.position + 1) % layout.pool != 0) continue;
      const int64_t entry = row.position / layout.pool;
      row.position = layout.EntryPage(entry) * kPageTokens + layout.EntryAt(entry);
      task.rows = &row;
      task.k = step.in_rows(0).row(t);
      task.tokens = 1;
      step.kernels.kv_append(task, 0, 1, step.scratch.data());
      if (!AllFinite(task.k, task.k_stride)) step.faults->Report(step.row_index[static_cast<size_t>(t)], step.step);
    }
  }

  size_t parts_;  // K and V, or K alone
};

class Attention final : public Operation {
 public:
  explicit Attention(const AttentionSettings& settings) : settings_(settings) {}
  std::string_view name() const override { return "attention"; }
  std::string_view rule() const override {
    return settings_.sinks ? kAttentionSinksRule : kAttentionRule;
  }
  std::string attributes() const override {
    std::string text = fmt::format("scale={}", settings_.scale);
    if (settings_.soft_cap != 0) text += fmt::format(" cap={}", settings_.soft_cap);
    if (settings_.window != 0) text += fmt::format(" window={}", settings_.window);
    if (settings_.first != 0) text += fmt::format(" first={}", settings_.first);
    if (settings_.seen_end == SeenEnd::kBefore) text += " before";
    if (settings_.seen_end == SeenEnd::kBatch) text += " batch";
    return text;
  }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kRows : i < 3 ? OperandKind::kState : OperandKind::kVector;
  }
  Split split() const override { return Split::kOwn; }
  size_t scratch_bytes(std::span<const Operand> in, int64_t) const override {
    const KvLayout& layout = *std::get<StateView>(in[1]).layout;
    return AttentionScratchBytes(layout,
                                 std::get<Rows>(in[0]).width / (layout.kv_heads * layout.dk));
  }
  bool meets() const override { return true; }
  size_t shared_bytes(std::span<const Operand>, int64_t) const override { return size_t{4} << 20; }
  void Run(const StepContext& step) const override {
    const StateView& state = std::get<StateView>(step.in[1]);
    const Rows &q = step.in_rows(0), &out = step.out_rows();
    const KvLayout& layout = *state.layout;
    AttentionTask task{};
    task.layout = layout;
    task.k_offset = state.k_offset;
    task.v_offset = state.v_offset;
    task.heads_per_kv = q.width / (layout.kv_heads * layout.dk);
    task.scale = settings_.scale;
    task.soft_cap = settings_.soft_cap;
    task.window = settings_.window;
    task.first = settings_.first;
    task.seen_end = settings_.seen_end;
    task.sinks = settings_.sinks ? std::get<std::span<const float>>(step.in[3]).data() : nullptr;
    task.q = q.data;
    task.q_stride = q.width;
    task.out = out.data;
    task.out_stride = out.width;
    task.rows = step.rows.places.data();
    task.tokens = step.tokens();
    const int64_t items = AttentionItems(task);
    const WorkRange share = step.Share(items);
    if (!DealsPieces(step, task, items)) {
      step.kernels.attention(task, share.begin, share.end, step.scratch.data());
      return;
    }
    const WorkRange pieces = step.Share(AttentionPieces(task));
    step.kernels.attention_spans(task, pieces.begin, pieces.end, step.shared.data(),
                                 step.scratch.data());
    step.team->Barrier();
    step.kernels.attention_merge(task, share.begin, share.end, step.shared.data(),
                                 step.scratch.data());
  }

 private:
  // Few items leave threads idle or uneven: then long contexts are dealt by span.
  static bool DealsPieces(const StepContext& step, const AttentionTask& task, int64_t items) {
    return step.members > 1 && step.team != nullptr && items < 4 * step.members &&
           AttentionPieces(task) > items && AttentionPartialBytes(task) <= step.shared.size();
  }

  AttentionSettings settings_;
};

}  // namespace

std::vector<LeafRange> SumLeaves::Roots(const LeafRange& owned) const {
  if (owned.first == owned.last) return {};
  if (stride == 0) return SubtreeRoots(owned.first, owned.last, total());
  std::vector<LeafRange> roots;
  // Leaves that are not there belong to the owner of the last that is.
  const int64_t last = owned.last == count() ? stride : owned.last;
  for (int64_t at = 0; at < total(); at += stride) {
    for (const LeafRange& root : SubtreeRoots(at + owned.first, at + last, total()))
      roots.push_back(root);
  }
  return roots;
}

OperationPtr MakeEmbed(float scale) { return std::make_shared<Embed>(scale); }
OperationPtr MakeEmbedPart(float scale, int64_t part) { return std::make_shared<Embed>(scale, part); }
OperationPtr MakeLinear(int64_t cut_unit) { return std::make_shared<Linear>(cut_unit); }
OperationPtr MakeQuantize() { return std::make_shared<Quantize>(); }
OperationPtr MakeSelectRows() { return std::make_shared<SelectRows>(); }
OperationPtr MakeRmsNorm(const NormForm& form) { return std::make_shared<RmsNorm>(form); }
OperationPtr MakeLayerNorm(const NormForm& form) { return std::make_shared<LayerNorm>(form); }
OperationPtr MakeKvAppend() { return std::make_shared<KvAppend>(2); }
OperationPtr MakeKvAppendKeys() { return std::make_shared<KvAppend>(1); }
OperationPtr MakeAttention(const AttentionSettings& settings) {
  return std::make_shared<Attention>(settings);
}
OperationPtr MakeAdd() { return std::make_shared<Add>(); }
OperationPtr MakeAddBias() { return std::make_shared<AddBias>(); }
OperationPtr MakeMul() { return std::make_shared<Mul>(); }
OperationPtr MakeScale(float factor) { return std::make_shared<Scale>(factor); }
OperationPtr MakePositionScale(float beta, int64_t length) {
  return std::make_shared<PositionScale>(beta, length);
}
OperationPtr MakeSoftCap(float cap) { return std::make_shared<SoftCapOperation>(cap); }
OperationPtr MakeActivate(Activation activation) { return std::make_shared<Activate>(activation); }
OperationPtr MakeActivateGated(const Gating& gating) {
  return std::make_shared<ActivateGated>(gating);
}

}  // namespace lockstep
