// Qwen2 and Qwen2.5 dense.
#include "convert/converters.h"

namespace lockstep {

Converter ConvertQwen2() {
  return {.architecture = "qwen2",
          .classes = {"Qwen2ForCausalLM"},
          .model_types = {"qwen2"},
          .keys = SetUnwindowedKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(), AttentionTensors(), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
