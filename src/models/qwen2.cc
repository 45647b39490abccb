// Qwen2 and Qwen2.5 dense (Yang et al. 2024): biases on queries, keys and values.
#include "models/decoder.h"

namespace lockstep {

Graph BuildQwen2(const ModelSource& source) { return BuildDecoder(source, ReadDecoderSpec(source, RopePairing::kHalves)); }

}  // namespace lockstep
