// GLM-4 0414 (Zhipu 2025): norms on both sides of each branch, half of each head rotated in pairs.
#include "models/decoder.h"

namespace lockstep {

Graph BuildGlm4(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  spec.post_norms = true;
  ForEachLayer(spec, [](LayerSpec& layer) { layer.feed_forward.gate_in_up = true; });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
