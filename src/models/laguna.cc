// Laguna (poolside): heads and rope by kind of layer, attention behind a softplus gate for each head or number, sigmoid scores with a
// correction of the choice, a shared expert.
#include "models/moe.h"

namespace lockstep {

Graph BuildLaguna(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  SetWindowPattern(source, 4, spec, Unwindowed::kFirst);
  const int64_t n_rot =
      source.OptionalCount("rope.dimension_count_swa").value_or(spec.ropes[0].options.n_rot);
  SetWindowedRope(spec, WindowedRope(source, n_rot, spec.ropes[0].options.base));
  ForEachLayer(spec, [](LayerSpec& layer) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    layer.attention.gate = Activation::kSoftplus;
  });
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid, true});
  moe.shared = ReadSharedExperts(source, moe);
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
