#include <cmath>

#include "base/error.h"
#include "models/delta_net.h"
#include "models/short_conv.h"
#include "ops/linear_attention.h"

namespace lockstep {
namespace {

// Of the norm of queries and keys.
constexpr float kLengthEps = 1e-6f;

class KimiDelta {
 public:
  KimiDelta(Parts& parts, ValueId x, const KimiDeltaSpec& spec)
      : parts_(parts),
        x_(x),
        spec_(spec),
        g_{'g', spec.heads, 1},
        r_{'r', 1, 1},
        d_{'d', spec.d, spec.d} {}

  ValueId Build() {
    const ValueId q = Unit("q_unit", Projected("q", {g_, d_}, 0)),
                  k = Unit("k_unit", Projected("k", {g_, d_}, 1));
    const ValueId v = Projected("v", {g_, r_, d_}, 2);
    const ValueId beta = parts_.Apply("beta", MakeActivate(Activation::kSigmoid),
                                      {parts_.Project("b", x_, "ssm_beta", {g_, r_})});
    LinearAttentionSettings settings;
    settings.dk = settings.dv = spec_.d;
    settings.channel_decay = true;
    settings.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec_.d)));
    const ValueId state = parts_.build().RecurrentState("state", {g_, r_, d_, d_},
                                                        LinearAttentionLogRow(settings, g_, r_));
    ValueId heads =
        parts_.Apply("heads", MakeLinearAttention(settings), {q, k, v, Decay(), beta, state});
    heads = parts_.Norm("heads_norm", heads, "ssm_norm", {d_});
    const ValueId gate = LowRank("gate", "ssm_g_a", "ssm_g_b");
    heads = parts_.Apply("heads_gated", MakeActivateGated({Activation::kSigmoid}), {gate, heads});
    return parts_.ProjectBack("mixed", heads, "attn_output", {g_, r_, d_}, spec_.d);
  }

 private:
  // part: its place in attn_qkv.
  ValueId Projected(std::string_view name, const std::vector<Axis>& axes, int64_t part) {
    const int64_t rows = spec_.heads * spec_.d;
    const ValueId raw = parts_.Project(fmt::format("{}_raw", name), x_, fmt::format("attn_{}", name),
                                       axes, {"attn_qkv", part * rows, 3 * rows});
    const std::string filters = fmt::format("ssm_conv1d_{}", name);
    return BuildConv(parts_, name, raw, {filters, 0, 0, spec_.taps, 1, Activation::kSilu});
  }
  ValueId Unit(std::string_view name, ValueId x) {
    return parts_.Apply(name, MakeL2Norm(kLengthEps, spec_.d), {x});
  }
  // [t, g, r, d] by way of d numbers.
  ValueId LowRank(std::string_view name, std::string_view down, std::string_view up) {
    const ValueId narrow = parts_.Project(fmt::format("{}_low", name), x_, down, {d_});
    return parts_.Apply(name, MakeLinear(0),
                        {narrow, parts_.build().Weight({parts_.Tensor(up)}, {g_, r_, d_, d_})});
  }
  // The file's ssm_a is -A.
  ValueId Decay() {
    GraphBuilder& build = parts_.build();
    ValueId y = LowRank("forget", "ssm_f_a", "ssm_f_b");
    y = parts_.Apply("forget_biased", MakeAddBias(),
                     {y, build.Weight({parts_.Tensor("ssm_dt", "bias")}, {g_, r_, d_})});
    const ValueId rate = build.Weight({parts_.BareTensor("ssm_a")}, {g_, r_});
    if (spec_.lower_bound == 0) {
      y = parts_.Apply("forget_positive", MakeActivate(Activation::kSoftplus), {y});
      y = parts_.Apply("decay_log", MakeMulHeads(), {y, rate});
    } else {
      y = parts_.Apply("forget_rate", MakeMulHeads(), {y, rate});
      y = parts_.Scale("forget_positive", y, -1);
      y = parts_.Apply("forget_share", MakeActivate(Activation::kSigmoid), {y});
      y = parts_.Scale("decay_log", y, spec_.lower_bound);
    }
    return parts_.Apply("decay", MakeActivate(Activation::kExp), {y});
  }

  Parts& parts_;
  ValueId x_;
  const KimiDeltaSpec& spec_;
  Axis g_, r_, d_;
};

}  // namespace

KimiDeltaSpec ReadKimiDeltaSpec(const ModelSource& source) {
  KimiDeltaSpec spec;
  const auto heads = source.OptionalCount("kda.head_count");
  spec.heads = heads ? *heads : source.Count("attention.head_count");
  spec.d = source.Count("kda.head_dim");
  spec.taps = ReadConvTaps(source, "ssm.conv_kernel");
  spec.lower_bound = source.FloatOr("kda.gate_lower_bound", 0);
  if (spec.d > kMostStateWidth) {
    source.Refuse("kda.head_dim",
                  fmt::format("expected at most {}, found {}", kMostStateWidth, spec.d));
  }
  if (spec.lower_bound > 0) {
    source.Refuse("kda.gate_lower_bound", fmt::format("expected at most 0, found {}", spec.lower_bound));
  }
  return spec;
}

ValueId BuildKimiDelta(Parts& parts, ValueId x, const KimiDeltaSpec& spec) {
  return KimiDelta(parts, x, spec).Build();
}

}  // namespace lockstep
