// Command R7B and its kin: layer norms, one norm for both branches, windows without which no position is told.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  keys.Set("attention.layer_norm_epsilon", config.Number("layer_norm_eps"));
  keys.Set("logit_scale", config.Number("logit_scale"));
  SetWindowKeys(config, 4, keys);
}

}  // namespace

Converter ConvertCohere2() {
  return {.architecture = "cohere2",
          .classes = {"Cohere2ForCausalLM"},
          .model_types = {"cohere2"},
          .defaults = R"({"tie_word_embeddings": true, "layer_norm_eps": 1e-5,
                          "logit_scale": 0.0625, "sliding_window": 4096})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({AttentionTensors(),
                                 GatedTensors(),
                                 {{"input_layernorm.weight", "attn_norm.weight"}}}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
