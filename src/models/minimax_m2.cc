// MiniMax-M2 (MiniMax 2025): norms over all heads of queries and keys at once, part of each head rotated, sigmoid scores with a correction
// of the choice.
#include "models/moe.h"

namespace lockstep {

Graph BuildMiniMaxM2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  ForEachLayer(spec,
               [](LayerSpec& layer) { layer.attention.qk_norm = AttentionSpec::QkNorm::kAll; });
  SetExperts(source, ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid, true}), spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
