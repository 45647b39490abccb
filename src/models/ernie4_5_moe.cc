// ERNIE 4.5 with experts (Baidu 2025): soft-max scores with a correction of the choice, shared experts.
#include "models/moe.h"

namespace lockstep {

Graph BuildErnie45Moe(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  MoeSpec moe = ReadMoeSpec(source, {.normalize = true, .sum_floor = 1e-12f});
  moe.shared = ReadSharedExperts(source, moe);
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
