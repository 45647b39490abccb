// Qwen3 dense: Qwen2 with norms of each head's query and key.
#include "convert/converters.h"

namespace lockstep {

Converter ConvertQwen3() {
  return {.architecture = "qwen3",
          .classes = {"Qwen3ForCausalLM"},
          .model_types = {"qwen3"},
          .keys = SetUnwindowedKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(), HeadNormTensors(), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
