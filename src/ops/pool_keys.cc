#include "ops/pool_keys.h"

#include <algorithm>

#include "base/checked.h"

namespace lockstep {
namespace {

class PoolKeys final : public Operation {
 public:
  explicit PoolKeys(const PoolKeysSettings& settings) : settings_(settings) {}
  std::string_view name() const override { return "pool_keys"; }
  std::string_view rule() const override {
    return settings_.gated ? "t, s!gx!, p!w! -> tgd" : "t, s!gx! -> tgd";
  }
  std::string attributes() const override {
    return fmt::format("pool={}{}", settings_.pool, settings_.overlap ? " overlap" : "");
  }
  FactorRule::OwnAxes own_axes() const override {
    return {{'d', Axis{'d', settings_.d, settings_.d}}};
  }
  OperandKind operand(size_t i) const override {
    return i == 0 ? OperandKind::kTokens : i == 1 ? OperandKind::kState : OperandKind::kVector;
  }
  Split split() const override { return Split::kTokens; }
  // One raw row, then values and gates of all rows that are pooled.
  size_t scratch_bytes(std::span<const Operand>, int64_t) const override {
    return static_cast<size_t>(
               RoundUp(2 * settings_.channels() + 2 * settings_.rows() * settings_.d, 16)) *
           sizeof(float);
  }
  void Run(const StepContext& step) const override {
    const Rows& y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      const AttentionRow& row = step.rows.places[static_cast<size_t>(t)];
      if ((row.position + 1) % settings_.pool != 0) {
        std::fill_n(y.row(t), y.width, 0.0f);
        continue;
      }
      float *values = Scratch(step) + 2 * settings_.channels(),
            *gates = values + settings_.rows() * settings_.d;
      const int64_t first = row.position + 1 - settings_.pool;
      int64_t rows = 0;
      if (settings_.overlap && first > 0) {
        for (int64_t j = 0; j < settings_.pool; ++j)
          Take(step, row, first - settings_.pool + j, j, 0, rows++, values, gates);
      }
      for (int64_t j = 0; j < settings_.pool; ++j) {
        Take(step, row, first + j, j, settings_.channels() - settings_.d, rows++, values, gates);
      }
      step.kernels.pool_rows(values, gates, rows, settings_.d, y.row(t));
    }
  }

 private:
  static float* Scratch(const StepContext& step) {
    return reinterpret_cast<float*>(step.scratch.data());
  }

  // Reads d channels from `channel` on of one position, the j-th of its window, to row `to`.
  void Take(const StepContext& step, const AttentionRow& row, int64_t position, int64_t j,
            int64_t channel, int64_t to, float* values, float* gates) const {
    const StateView& state = std::get<StateView>(step.in[1]);
    const int64_t d = settings_.d, w = settings_.channels();
    float* raw = Scratch(step);
    ReadKey(*state.layout, row.pages[position / kPageTokens] + state.k_offset,
            position % kPageTokens, raw);
    std::copy_n(raw + channel, d, values + to * d);
    if (!settings_.gated) {
      std::fill_n(gates + to * d, d, 0.0f);
      return;
    }
    const auto bias = std::get<std::span<const float>>(step.in[2]);
    const float* gate = raw + w + channel;
    for (int64_t c = 0; c < d; ++c)
      gates[to * d + c] = gate[c] + bias[static_cast<size_t>(j * w + channel + c)];
  }

  PoolKeysSettings settings_;
};

}  // namespace

OperationPtr MakePoolKeys(const PoolKeysSettings& settings) {
  return std::make_shared<PoolKeys>(settings);
}

}  // namespace lockstep
