// Llama 1 to 3, Mistral, SmolLM2 and what else is written as "llama": Touvron et al. 2023, Grattafiori et al. 2024.
#include "models/decoder.h"

namespace lockstep {

Graph BuildLlama(const ModelSource& source) { return BuildDecoder(source, ReadDecoderSpec(source, RopePairing::kPairs)); }

}  // namespace lockstep
