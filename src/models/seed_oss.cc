// Seed-OSS (ByteDance 2025): Llama with biases on queries, keys and values, and heads wider than the model's width over their number.
#include "models/decoder.h"

namespace lockstep {

Graph BuildSeedOss(const ModelSource& source) { return BuildDecoder(source, ReadDecoderSpec(source, RopePairing::kHalves)); }

}  // namespace lockstep
