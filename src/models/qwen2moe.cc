// Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024): Qwen2 with experts, and a shared expert behind a gate of its own.
#include "models/moe.h"

namespace lockstep {

Graph BuildQwen2Moe(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  MoeSpec moe = ReadMoeSpec(source, {});
  moe.shared = ReadSharedExperts(source, moe);
  moe.shared_gate = true;
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
