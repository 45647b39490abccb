// GLM-5 (Zhipu AI 2026): as DeepSeek-V3.2, but its indexers rotate neighbouring pairs, and layers may see what an earlier layer's selected.
#include <algorithm>

#include "models/latent_attention.h"

namespace lockstep {

Graph BuildGlmDsa(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  const LatentAttentionSpec latent = ReadLatentAttention(source, spec);
  std::vector<bool> own(spec.layers.size(), true);
  constexpr std::string_view kTypes = "attention.indexer.types";
  if (source.metadata().Find(source.Key(kTypes))) {
    const auto listed =
        source.metadata().RequiredArray<bool>(source.Key(kTypes), GgufLength::AtLeast(static_cast<uint64_t>(source.layers())));
    // Next-token blocks that are not listed have one.
    std::copy_n(listed.begin(), std::min(listed.size(), own.size()), own.begin());
  }
  if (!own[0]) source.Refuse(kTypes, "expected an indexer in the first layer, found none");
  UseSelectedAttention(spec, latent, ReadIndexer(source, RopePairing::kPairs, latent.rope), own);
  UseExperts(source, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
