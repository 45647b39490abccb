// DeepSeek-V3.2 (DeepSeek-AI 2025): DeepSeek-V3 whose layers attend to the positions that an indexer selects.
#include "models/latent_attention.h"

namespace lockstep {

Graph BuildDeepseek32(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  const LatentAttentionSpec latent = ReadLatentAttention(source, spec);
  UseSelectedAttention(spec, latent, ReadIndexer(source, RopePairing::kHalves, latent.rope),
                       std::vector<bool>(spec.layers.size(), true));
  UseExperts(source, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
