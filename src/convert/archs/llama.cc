// Llama 1 to 3, Mistral and what else transformers runs as Llama.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  if (config.StringOr("model_type", "") == "mistral") SetMistralWindow(config, keys);
}

}  // namespace

Converter ConvertLlama() {
  return {.architecture = "llama",
          .classes = {"LlamaForCausalLM", "MistralForCausalLM", "LLaMAForCausalLM",
                      // Releases with a tower for images around a Mistral
                      "Mistral3ForConditionalGeneration"},
          .model_types = {"llama", "mistral"},
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(PairQueries, PairKeys), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
