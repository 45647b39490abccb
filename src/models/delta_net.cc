#include "models/delta_net.h"

#include <cmath>

#include "base/error.h"
#include "models/short_conv.h"
#include "ops/linear_attention.h"

namespace lockstep {
namespace {

// Of the norm of queries and keys.
constexpr float kLengthEps = 1e-6f;

// One delta network's sizes as axes and rows of its fused tensors.
struct Sizes {
  explicit Sizes(const DeltaNetSpec& spec)
      : per_key(spec.value_heads / spec.key_heads),
        keys(spec.key_heads * spec.dk),
        values(spec.value_heads * spec.dv),
        g{'g', spec.key_heads, 1},
        r{'r', per_key, 1},
        dk{'d', spec.dk, spec.dk},
        dv{'d', spec.dv, spec.dv},
        heads(spec.tiled ? std::vector<Axis>{r, g} : std::vector<Axis>{g, r}) {}

  std::vector<Axis> Values() const { return {heads[0], heads[1], dv}; }

  int64_t per_key, keys, values;
  Axis g, r, dk, dv;
  std::vector<Axis> heads;  // of values
};

Shape ShapeOf(const std::vector<Axis>& axes) {
  Shape shape;
  for (const Axis& axis : axes) shape.Append(axis);
  return shape;
}

struct Projections {
  ValueId q, k, v, z, beta, alpha;
};

Projections Project(Parts& parts, ValueId x, const DeltaNetSpec& spec) {
  const Sizes n(spec);
  Projections p{};
  if (parts.Has("ssm_in")) {
    const int64_t v_rows = n.per_key * spec.dv, stride = 2 * spec.dk + 2 * v_rows,
                  rows = stride * spec.key_heads;
    p.q = parts.Project("q", x, "", {n.g, n.dk}, {"ssm_in", 0, rows, spec.dk, stride});
    p.k = parts.Project("k", x, "", {n.g, n.dk}, {"ssm_in", spec.dk, rows, spec.dk, stride});
    p.v = parts.Project("v", x, "", n.Values(), {"ssm_in", 2 * spec.dk, rows, v_rows, stride});
    p.z = parts.Project("z", x, "", n.Values(),
                        {"ssm_in", 2 * spec.dk + v_rows, rows, v_rows, stride});
  } else {
    const int64_t rows = 2 * n.keys + n.values;
    p.q = parts.Project("q", x, "", {n.g, n.dk}, {"attn_qkv", 0, rows});
    p.k = parts.Project("k", x, "", {n.g, n.dk}, {"attn_qkv", n.keys, rows});
    p.v = parts.Project("v", x, "", n.Values(), {"attn_qkv", 2 * n.keys, rows});
    p.z = parts.Project("z", x, "attn_gate", n.Values());
  }
  if (parts.Has("ssm_ba")) {
    const int64_t rows = 2 * spec.value_heads;
    p.beta = parts.Project("b", x, "", n.heads, {"ssm_ba", 0, rows, n.per_key, 2 * n.per_key});
    p.alpha =
        parts.Project("a", x, "", n.heads, {"ssm_ba", n.per_key, rows, n.per_key, 2 * n.per_key});
  } else {
    p.beta = parts.Project("b", x, "ssm_beta", n.heads);
    p.alpha = parts.Project("a", x, "ssm_alpha", n.heads);
  }
  return p;
}

// exp(A softplus(alpha + bias)), A being negative in the file.
ValueId Decay(Parts& parts, ValueId alpha, const Sizes& n) {
  GraphBuilder& build = parts.build();
  const Shape heads = ShapeOf(n.heads);
  ValueId step = parts.Apply("dt", MakeAddBias(),
                             {alpha, build.Weight({parts.Tensor("ssm_dt", "bias")}, heads)});
  step = parts.Apply("dt_positive", MakeActivate(Activation::kSoftplus), {step});
  step = parts.Apply("decay_log", MakeMulColumns(),
                     {step, build.Weight({parts.BareTensor("ssm_a")}, heads)});
  return parts.Apply("decay", MakeActivate(Activation::kExp), {step});
}

}  // namespace

DeltaNetSpec ReadDeltaNetSpec(const ModelSource& source) {
  DeltaNetSpec spec;
  spec.key_heads = source.Count("ssm.group_count");
  spec.value_heads = source.Count("ssm.time_step_rank");
  spec.dk = source.Count("ssm.state_size");
  spec.taps = ReadConvTaps(source, "ssm.conv_kernel");
  const int64_t inner = source.Count("ssm.inner_size");
  if (spec.value_heads % spec.key_heads != 0) {
    source.Refuse("ssm.time_step_rank",
                  fmt::format("expected a multiple of the {} key heads, found {}", spec.key_heads,
                              spec.value_heads));
  }
  if (inner % spec.value_heads != 0) {
    source.Refuse("ssm.inner_size", fmt::format("expected a multiple of the {} heads, found {}",
                                                spec.value_heads, inner));
  }
  spec.dv = inner / spec.value_heads;
  if (spec.dk > kMostStateWidth || spec.dv > kMostStateWidth) {
    source.Refuse("ssm.state_size", fmt::format("expected at most {} a head, found {} and {}",
                                                kMostStateWidth, spec.dk, spec.dv));
  }
  return spec;
}

std::vector<bool> ReadRecurrentLayers(const ModelSource& source, size_t layers) {
  const std::string key = source.Key("attention.recurrent_layers");
  if (source.metadata().Find(key)) {
    // Blocks that predict tokens further ahead are listed too.
    const auto blocks = static_cast<uint64_t>(source.Count("block_count"));
    const auto flags = source.metadata().RequiredArray<bool>(key, GgufLength::Exactly(blocks));
    return {flags.begin(), flags.begin() + static_cast<int64_t>(layers)};
  }
  const auto interval =
      static_cast<size_t>(source.OptionalCount("full_attention_interval").value_or(4));
  // Next-token blocks have attention.
  const auto own = static_cast<size_t>(source.layers());
  std::vector<bool> recurrent;
  for (size_t i = 0; i < layers; ++i) recurrent.push_back(i < own && (i + 1) % interval != 0);
  return recurrent;
}

ValueId BuildDeltaNet(Parts& parts, ValueId x, const DeltaNetSpec& spec) {
  const Sizes n(spec);
  const Projections p = Project(parts, x, spec);
  ConvSpec conv{"ssm_conv1d", 0, 2 * n.keys + n.values, spec.taps, 1, Activation::kSilu};
  ValueId q = BuildConv(parts, "q_conv", p.q, conv);
  conv.row = n.keys;
  ValueId k = BuildConv(parts, "k_conv", p.k, conv);
  conv.row = 2 * n.keys;
  const ValueId v = BuildConv(parts, "v_conv", p.v, conv);
  q = parts.Apply("q_unit", MakeL2Norm(kLengthEps, spec.dk), {q});
  k = parts.Apply("k_unit", MakeL2Norm(kLengthEps, spec.dk), {k});
  const ValueId beta = parts.Apply("beta", MakeActivate(Activation::kSigmoid), {p.beta});
  const ValueId decay = Decay(parts, p.alpha, n);
  LinearAttentionSettings settings;
  settings.dk = spec.dk, settings.dv = spec.dv;
  settings.tiled = spec.tiled;
  settings.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.dk)));
  const ValueId state =
      parts.build().RecurrentState("state", {n.heads[0], n.heads[1], n.dk, n.dv},
                                   LinearAttentionLogRow(settings, n.heads[0], n.heads[1]));
  ValueId heads =
      parts.Apply("heads", MakeLinearAttention(settings), {q, k, v, decay, beta, state});
  heads = parts.Norm("heads_norm", heads, "ssm_norm", {n.dv});
  heads = parts.Apply("heads_gated", MakeActivateGated({spec.output_gate}), {p.z, heads});
  return parts.ProjectBack("mixed", heads, "ssm_out", n.Values(), spec.dv);
}

}  // namespace lockstep
