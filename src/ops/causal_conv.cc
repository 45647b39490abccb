#include "ops/causal_conv.h"

#include <array>
#include <cmath>
#include <cstring>

#include "ops/finite.h"
#include "ops/operations.h"

namespace lockstep {

void CausalConvReference(const float* const* x, const float* w, const float* bias, int64_t taps,
                         int64_t n, float* y) {
  for (int64_t c = 0; c < n; ++c) {
    float sum = bias != nullptr ? bias[c] : 0;
    for (int64_t j = 0; j < taps; ++j) sum = std::fma(x[j][c], w[j * n + c], sum);
    y[c] = sum;
  }
}

namespace {

// A run of channels of one sequence (TakeIn). State: [past, channels], a row of the log: [channels].
class ConvPart {
 public:
  ConvPart(const StepContext& step, const RecurrentRun& run, WorkRange share, const float* w,
           const CausalConvSettings& settings)
      : step_(step),
        x_(step.in_rows(0)),
        view_(std::get<RecurrentView>(step.in.back())),
        slot_(reinterpret_cast<float*>(run.slot->data)),
        snapshot_(reinterpret_cast<float*>(run.slot->snapshot)),
        share_(share),
        w_(w),
        taps_(static_cast<int64_t>(std::get<std::span<const float>>(step.in[1]).size()) / x_.width),
        dilation_(settings.dilation),
        past_((taps_ - 1) * dilation_),
        activation_(settings.activation) {
    if (step.in.size() == 4)
      bias_ = std::get<std::span<const float>>(step.in[2]).data() + share.begin;
  }

  void Clear() {
    for (int64_t i = 0; i < past_; ++i) std::fill_n(Past(view_.state, i), share_.size(), 0.0f);
  }
  void Keep() { CopyPast(view_.state, view_.kept); }
  void Restore() { CopyPast(view_.kept, view_.state); }
  void Save() {
    for (int64_t i = 0; i < past_; ++i)
      Copy(Past(view_.state, i), snapshot_ + (Past(view_.state, i) - slot_));
  }
  void Replay(int64_t rows) {
    Shift(rows, [&](int64_t i) { return LogRow(i); });
  }
  void Advance(int64_t first, int64_t end) {
    std::array<const float*, kMostConvTaps> rows;
    for (int64_t t = first; t < end; ++t) {
      for (int64_t j = 0; j < taps_; ++j) {
        const int64_t at = t - (taps_ - 1 - j) * dilation_;
        rows[static_cast<size_t>(j)] =
            at >= first ? Row(at) : Past(view_.state, at - first + past_);
      }
      float* y = step_.out_rows().row(t) + share_.begin;
      step_.kernels.causal_conv(rows.data(), w_, bias_, taps_, share_.size(), y);
      if (activation_) step_.kernels.activate(*activation_, y, share_.size(), y);
      // What is carried outlives the batch.
      if (!AllFinite(Row(t), share_.size()))
        step_.faults->Report(step_.row_index[static_cast<size_t>(t)], step_.step);
    }
    Shift(end - first, [&](int64_t i) { return Row(first + i); });
  }
  void Log(int64_t row, int64_t index) { Copy(Row(row), LogRow(index)); }

 private:
  const float* Row(int64_t t) const { return x_.row(t) + share_.begin; }
  float* Past(int64_t part, int64_t i) const { return slot_ + part + i * x_.width + share_.begin; }
  float* LogRow(int64_t i) const { return slot_ + view_.log + i * view_.row_floats + share_.begin; }
  void Copy(const float* from, float* to) const {
    std::memcpy(to, from, static_cast<size_t>(share_.size()) * sizeof(float));
  }
  void CopyPast(int64_t from, int64_t to) const {
    for (int64_t i = 0; i < past_; ++i) Copy(Past(from, i), Past(to, i));
  }
  // Makes the last rows of the state and `count` rows after it the state.
  template <typename F>
  void Shift(int64_t count, F row) const {
    if (count == 0) return;
    for (int64_t i = 0; i < past_; ++i) {
      const int64_t from = i + count;
      Copy(from < past_ ? Past(view_.state, from) : row(from - past_), Past(view_.state, i));
    }
  }

  const StepContext& step_;
  const Rows& x_;
  const RecurrentView view_;
  float* slot_;
  float* snapshot_;
  const WorkRange share_;
  const float* w_;  // [taps, share]
  const float* bias_ = nullptr;
  const int64_t taps_, dilation_, past_;
  const std::optional<Activation> activation_;
};

class CausalConvOperation final : public Operation {
 public:
  explicit CausalConvOperation(const CausalConvSettings& settings) : settings_(settings) {}
  std::string_view name() const override { return "causal_conv"; }
  std::string_view rule() const override {
    return settings_.bias ? kCausalConvBiasRule : kCausalConvRule;
  }
  std::string attributes() const override {
    std::string text(settings_.activation ? ActivationName(*settings_.activation) : "");
    if (settings_.dilation != 1) text += fmt::format(" dilation={}", settings_.dilation);
    return text;
  }
  OperandKind operand(size_t i) const override {
    const size_t state = settings_.bias ? 3 : 2;
    return i == 0 ? OperandKind::kRows : i == state ? OperandKind::kState : OperandKind::kVector;
  }
  bool writes_state() const override { return true; }
  Split split() const override { return Split::kOwn; }
  size_t scratch_bytes(std::span<const Operand> in, int64_t) const override {
    return std::get<std::span<const float>>(in[1]).size_bytes();
  }
  void Run(const StepContext& step) const override {
    const int64_t width = step.in_rows(0).width;
    const WorkRange share = step.Share(width, kColumnUnit);
    if (share.size() == 0) return;
    // The file's filters lie side by side; lanes run across channels.
    const auto filters = std::get<std::span<const float>>(step.in[1]);
    const int64_t taps = static_cast<int64_t>(filters.size()) / width;
    auto* w = reinterpret_cast<float*>(step.scratch.data());
    for (int64_t c = 0; c < share.size(); ++c) {
      for (int64_t j = 0; j < taps; ++j)
        w[j * share.size() + c] = filters[static_cast<size_t>((share.begin + c) * taps + j)];
    }
    ForEachRun(step.rows.places, [&](const RecurrentRun& run) {
      TakeIn(run, ConvPart(step, run, share, w, settings_));
    });
  }

 private:
  CausalConvSettings settings_;
};

}  // namespace

OperationPtr MakeCausalConv(const CausalConvSettings& settings) {
  return std::make_shared<CausalConvOperation>(settings);
}

}  // namespace lockstep
