// Ministral 3 and Mistral 3: Llama with an attention temperature that grows with position.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  // Positions are counted in the rotary scaling's original context, which is a key of its own.
  keys.Set("attention.temperature_scale", config.Rope().Number("llama_4_scaling_beta"));
}

}  // namespace

Converter ConvertMistral3() {
  return {
      .architecture = "mistral3",
      .classes = {"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"},
      .model_types = {"ministral3"},
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors =
          Join({PreNormTensors(), AttentionTensors(PairQueries, PairKeys), GatedTensors()}),
      .more = EmitRopeTensors,
      .accepts = [](const Config& config) { return config.Rope().Has("llama_4_scaling_beta"); }};
}

}  // namespace lockstep
