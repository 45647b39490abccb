// LFM2 (Liquid AI 2025): most layers are a short convolution between two gates, some are attention.
#include "models/decoder.h"
#include "models/short_conv.h"

namespace lockstep {
namespace {

// c * conv(b * x), with b, c and x three runs of rows of one projection.
ValueId BuildShortConv(Parts& parts, ValueId x, int64_t taps) {
  const int64_t width = parts.Width().size;
  const Axis f{'f', width, 1};
  auto project = [&](std::string_view name, int64_t part) {
    return parts.Project(name, x, "", {f}, {"shortconv.in_proj", part * width, 3 * width});
  };
  const ValueId b = project("conv_b", 0), c = project("conv_c", 1);
  const ValueId input = parts.Apply("conv_in", MakeMul(), {b, project("conv_x", 2)});
  const ValueId y = BuildConv(parts, "conv", input, {"shortconv.conv", 0, 0, taps, 1, {}});
  const ValueId gated = parts.Apply("conv_gated", MakeMul(), {c, y});
  return parts.ProjectBack("mixed", gated, "shortconv.out_proj", {f}, 1);
}

}  // namespace

Graph BuildLfm2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  const int64_t taps = ReadConvTaps(source, "shortconv.l_cache");
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    if (layer.attention.kv_heads != 0) continue;
    layer.mixer = [taps](Parts& parts, ValueId x) { return BuildShortConv(parts, x, taps); };
  }
  // Files name the last norm after the embedding, as their converter has it.
  if (source.HasTensor("token_embd_norm.weight")) spec.final_norm = "token_embd_norm";
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
