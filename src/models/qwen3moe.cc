// Qwen3 with experts (Yang et al. 2025).
#include "models/moe.h"

namespace lockstep {

Graph BuildQwen3Moe(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  ForEachLayer(spec,
               [](LayerSpec& layer) { layer.attention.qk_norm = AttentionSpec::QkNorm::kHead; });
  SetExperts(source, ReadMoeSpec(source, {.normalize = true}), spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
