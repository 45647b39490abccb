// OLMo 2: norms after the branches only, norms over all heads of queries and keys.
#include "convert/converters.h"

namespace lockstep {

Converter ConvertOlmo2() {
  return {.architecture = "olmo2",
          .classes = {"Olmo2ForCausalLM"},
          .model_types = {"olmo2"},
          .keys = SetDecoderKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({AttentionTensors(),
                    HeadNormTensors(),
                    GatedTensors(),
                    {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
                     {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}}}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
