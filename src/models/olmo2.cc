// OLMo 2 (OLMo team 2024): norms after the branches only, norms over all heads of queries and keys.
#include "models/decoder.h"

namespace lockstep {

Graph BuildOlmo2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  spec.pre_norms = false;
  spec.post_norms = true;
  ForEachLayer(spec, [](LayerSpec& layer) { layer.attention.qk_norm = AttentionSpec::QkNorm::kAll; });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
