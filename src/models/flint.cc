// Flint (RecursiveSI): sinks in every layer, positions told to windowed layers only, sigmoid scores, a shared expert without a gate.
#include "models/moe.h"

namespace lockstep {

Graph BuildFlint(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  SetWindowPattern(source, 4, spec);
  ForEachLayer(spec, [](LayerSpec& layer) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    layer.attention.sinks = true;
    if (layer.attention.window == 0) layer.attention.rope.reset();
  });
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid, true});
  moe.shared = ReadSharedExperts(source, moe);
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
