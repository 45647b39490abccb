// Llama 1 to 3, Mistral, SmolLM2 and what else is written as "llama": Touvron et al. 2023, Grattafiori et al. 2024. With experts it is
// Mixtral (Jiang et al. 2024).
#include "models/moe.h"

namespace lockstep {

Graph BuildLlama(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  SetWindowPattern(source, 0, spec);
  if (source.OptionalCount("expert_count", 0).value_or(0) != 0) SetExperts(source, ReadMoeSpec(source, {.normalize = true}), spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
