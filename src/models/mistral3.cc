// Mistral 3 and Ministral 3: Llama with YaRN and an attention temperature that grows with position.
#include "models/decoder.h"

namespace lockstep {

Graph BuildMistral3(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  const float beta = source.FloatOr("attention.temperature_scale", 0);
  const int64_t length = source.OptionalCount("attention.temperature_length").value_or(spec.ropes[0].options.original_context);
  ForEachLayer(spec, [&](LayerSpec& layer) {
    layer.attention.temperature_beta = beta;
    layer.attention.temperature_length = length;
  });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
