// DeepSeek-V2 and V3, and what is built like them (GLM-4.7-Flash, Kimi K2, Mistral 4 ...): latent attention, experts after the first layers.
#include "models/latent_attention.h"

namespace lockstep {

Graph BuildDeepseek2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  LatentAttentionSpec latent = ReadLatentAttention(source, spec);
  latent.temperature_beta = source.FloatOr("attention.temperature_scale", 0);
  latent.temperature_length = source.OptionalCount("attention.temperature_length")
                                  .value_or(spec.ropes[0].options.original_context);
  UseLatentAttention(spec, latent);
  UseExperts(source, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
