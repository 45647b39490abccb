#include "models/mamba.h"

#include "base/error.h"
#include "models/short_conv.h"
#include "ops/linear_attention.h"

namespace lockstep {

MambaSpec ReadMambaSpec(const ModelSource& source) {
  MambaSpec spec;
  spec.heads = source.Count("ssm.time_step_rank");
  spec.groups = source.Count("ssm.group_count");
  spec.state_width = source.Count("ssm.state_size");
  spec.taps = ReadConvTaps(source, "ssm.conv_kernel");
  const int64_t inner = source.Count("ssm.inner_size");
  if (spec.heads % spec.groups != 0) {
    source.Refuse(
        "ssm.time_step_rank",
        fmt::format("expected a multiple of the {} groups, found {}", spec.groups, spec.heads));
  }
  if (inner % spec.heads != 0) {
    source.Refuse("ssm.inner_size",
                  fmt::format("expected a multiple of the {} heads, found {}", spec.heads, inner));
  }
  spec.head_width = inner / spec.heads;
  if (spec.head_width > kMostStateWidth || spec.state_width > kMostStateWidth) {
    source.Refuse("ssm.state_size",
                  fmt::format("expected at most {} a head, found {} and {}", kMostStateWidth,
                              spec.state_width, spec.head_width));
  }
  return spec;
}

ValueId BuildMamba(Parts& parts, ValueId x, const MambaSpec& spec) {
  GraphBuilder& build = parts.build();
  const Axis g{'g', spec.groups, 1}, r{'r', spec.heads / spec.groups, 1},
      n{'d', spec.state_width, spec.state_width}, p{'d', spec.head_width, spec.head_width};
  const int64_t inner = spec.heads * spec.head_width, shared = spec.groups * spec.state_width;
  const int64_t channels = inner + 2 * shared, rows = inner + channels + spec.heads;
  // The file's one projection: gate, x, B, C, time steps.
  auto project = [&](std::string_view name, const std::vector<Axis>& axes, int64_t row) {
    return parts.Project(name, x, "", axes, {"ssm_in", row, rows});
  };
  ConvSpec conv{"ssm_conv1d", 0, channels, spec.taps, 1, Activation::kSilu};
  const ValueId z = project("z", {g, r, p}, 0), dt = project("dt_raw", {g, r}, inner + channels);
  const ValueId v_raw = project("x_raw", {g, r, p}, inner);
  const ValueId b_raw = project("b_raw", {g, n}, 2 * inner),
                c_raw = project("c_raw", {g, n}, 2 * inner + shared);
  const ValueId v = BuildConv(parts, "x_conv", v_raw, conv);
  conv.row = inner;
  const ValueId b = BuildConv(parts, "b_conv", b_raw, conv);
  conv.row = inner + shared;
  const ValueId c = BuildConv(parts, "c_conv", c_raw, conv);

  ValueId step = parts.Apply("dt", MakeAddBias(),
                             {dt, build.Weight({parts.Tensor("ssm_dt", "bias")}, {g, r})});
  step = parts.Apply("dt_positive", MakeActivate(Activation::kSoftplus), {step});
  ValueId decay = parts.Apply("decay_log", MakeMulColumns(),
                              {step, build.Weight({parts.BareTensor("ssm_a")}, {g, r})});
  decay = parts.Apply("decay", MakeActivate(Activation::kExp), {decay});
  LinearAttentionSettings settings;
  settings.dk = spec.state_width, settings.dv = spec.head_width;
  settings.delta = false;
  const ValueId state =
      build.RecurrentState("state", {g, r, n, p}, LinearAttentionLogRow(settings, g, r));
  ValueId heads =
      parts.Apply("heads", MakeLinearAttention(settings), {c, b, v, decay, step, state});
  const ValueId skip =
      parts.Apply("skip", MakeMulHeads(), {v, build.Weight({parts.BareTensor("ssm_d")}, {g, r})});
  heads = parts.Apply("heads_skipped", MakeAdd(), {heads, skip});
  heads = parts.Apply("heads_gated", MakeActivateGated({Activation::kSilu}), {z, heads});
  heads = parts.Apply("heads_norm", MakeGroupedRmsNorm(parts.norm().eps, inner / spec.groups),
                      {heads, build.Weight({parts.Tensor("ssm_norm")}, {g, r, p})});
  return parts.ProjectBack("mixed", heads, "ssm_out", {g, r, p}, spec.head_width);
}

}  // namespace lockstep
