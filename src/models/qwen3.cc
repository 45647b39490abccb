// Qwen3 dense (Yang et al. 2025): norms on each head's query and key.
#include "models/decoder.h"

namespace lockstep {

Graph BuildQwen3(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  ForEachLayer(spec, [](LayerSpec& layer) { layer.attention.qk_norm = AttentionSpec::QkNorm::kHead; });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
