// GLM 4.5 and 4.6 (GLM-4.5 Team 2025): dense layers first, sigmoid scores with a correction of the choice, half of each head rotated.
#include <fmt/format.h>

#include "models/moe.h"

namespace lockstep {

Graph BuildGlm4Moe(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    // The smaller releases have no norms on queries and keys.
    auto has = [&](std::string_view name) {
      return source.HasTensor(fmt::format("blk.{}.{}.weight", i, name));
    };
    if (has("attn_q_norm") || has("attn_k_norm"))
      spec.layers[i].attention.qk_norm = AttentionSpec::QkNorm::kHead;
  }
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid, true, 1e-20f});
  moe.shared = ReadSharedExperts(source, moe);
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
