// Hunyuan dense (Tencent 2025): norms of each head's query and key after their rotation.
#include "models/decoder.h"

namespace lockstep {

Graph BuildHunyuanDense(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  ForEachLayer(spec, [](LayerSpec& layer) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    layer.attention.norm_after_rope = true;
  });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
