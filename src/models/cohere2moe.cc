// Command A with experts (Cohere): attention and experts side by side, positions told to windowed and dense layers only, the mean of the chosen
// and the shared experts.
#include "models/moe.h"

namespace lockstep {

Graph BuildCohere2Moe(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  spec.parallel = true;
  SetWindowPattern(source, 4, spec);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].attention.window == 0 && HasExperts(source, i))
      spec.layers[i].attention.rope.reset();
  }
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid});
  moe.choose_by_router = true;
  moe.shared = ReadSharedExperts(source, moe);
  if (moe.shared) moe.scale = 0.5f;
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
