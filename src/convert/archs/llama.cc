// Llama 1 to 3, Mistral and what else transformers runs as Llama.
#include "convert/converters.h"

namespace lockstep {

Converter ConvertLlama() {
  return {.architecture = "llama",
          .classes = {"LlamaForCausalLM", "MistralForCausalLM", "LLaMAForCausalLM",
                      // Releases with a tower for images around a Mistral
                      "Mistral3ForConditionalGeneration"},
          .model_types = {"llama", "mistral"},
          .keys = SetDecoderKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(PairQueries, PairKeys), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
