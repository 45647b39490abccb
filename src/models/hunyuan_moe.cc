// Hunyuan-A13B (Tencent 2025): norms on each head's query and key after their rotation, one expert that every token sees.
#include "models/moe.h"

namespace lockstep {

Graph BuildHunyuanMoe(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  ForEachLayer(spec, [](LayerSpec& layer) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    layer.attention.norm_after_rope = true;
  });
  MoeSpec moe = ReadMoeSpec(source, {.normalize = true});
  moe.shared = ReadSharedExperts(source, moe);
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
