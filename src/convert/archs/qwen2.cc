// Qwen2 and Qwen2.5 dense.
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

Converter ConvertQwen2() {
  return {.architecture = "qwen2",
          .classes = {"Qwen2ForCausalLM"},
          .model_types = {"qwen2"},
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(), AttentionTensors(), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
