// Step 3.5 (StepFun 2026): heads and rope by kind of layer, attention behind a sigmoid gate for each head, sigmoid scores with a correction of
// the choice, SwiGLU clamped in some layers.
#include "models/moe.h"

namespace lockstep {
namespace {

// Bounds by layer, 0: none.
Gating Clamped(float limit) {
  Gating gating;
  if (limit > 0) gating.activated_limit = gating.up_limit = limit;
  return gating;
}

}  // namespace

Graph BuildStep35(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  SetWindowPattern(source, 4, spec);
  const int64_t d = spec.layers[0].attention.dk;
  // Layers that see all rotate half of each head; files state the whole, and scaled frequencies of more than are rotated.
  RopeOptions& all = spec.ropes[0].options;
  const int64_t windowed_rot = source.OptionalCount("rope.dimension_count_swa").value_or(d);
  all.n_rot = source.OptionalCount("rope.dimension_count").value_or(d) /
              (source.OptionalCount("rope.dimension_count_swa") ? 1 : 2);
  if (static_cast<int64_t>(all.freq_factors.size()) > all.n_rot / 2)
    all.freq_factors.resize(static_cast<size_t>(all.n_rot / 2));
  SetWindowedRope(spec, WindowedRope(source, windowed_rot, 10000));
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid, true});
  moe.shared = ReadSharedExperts(source, moe);
  const auto clamps = source.OptionalFloatPerLayer("swiglu_clamp_exp", spec.layers.size());
  const auto shared_clamps = source.OptionalFloatPerLayer("swiglu_clamp_shexp", spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    layer.attention.gate = Activation::kSigmoid;
    if (!clamps.empty()) moe.ffn.gating = Clamped(clamps[i]);
    if (!shared_clamps.empty()) {
      layer.feed_forward.gating = Clamped(shared_clamps[i]);
      if (moe.shared) moe.shared->gating = Clamped(shared_clamps[i]);
    }
    if (!HasExperts(source, i)) continue;
    layer.channel_mixer = [moe](Parts& parts, ValueId x) { return BuildMoe(parts, x, moe); };
  }
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
