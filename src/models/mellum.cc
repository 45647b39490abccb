// Mellum 2 (JetBrains): Qwen3 with experts, windowed layers whose rope is not stretched.
#include "models/moe.h"

namespace lockstep {

Graph BuildMellum(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  ForEachLayer(spec,
               [](LayerSpec& layer) { layer.attention.qk_norm = AttentionSpec::QkNorm::kHead; });
  SetWindowPattern(source, 4, spec);
  SetWindowedRope(spec,
                  WindowedRope(source, spec.ropes[0].options.n_rot, spec.ropes[0].options.base));
  SetExperts(source, ReadMoeSpec(source, {.normalize = true}), spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
