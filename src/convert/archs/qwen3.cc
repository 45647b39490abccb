// Qwen3 dense: Qwen2 with norms of each head's query and key.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  if (config.BoolOr("use_sliding_window", false)) {
    config.Refuse("use_sliding_window",
                  "expected false, as no file of this architecture has windows");
  }
  SetDecoderKeys(config, keys);
}

}  // namespace

Converter ConvertQwen3() {
  return {.architecture = "qwen3",
          .classes = {"Qwen3ForCausalLM"},
          .model_types = {"qwen3"},
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(), HeadNormTensors(), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
