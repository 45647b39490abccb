// Granite 3 dense: Llama with multipliers.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  keys.Set("attention.scale", config.Number("attention_multiplier"));
  keys.Set("embedding_scale", config.Number("embedding_multiplier"));
  keys.Set("residual_scale", config.Number("residual_multiplier"));
  keys.Set("logit_scale", config.Number("logits_scaling"));
}

}  // namespace

Converter ConvertGranite() {
  return {.architecture = "granite",
          .classes = {"GraniteForCausalLM"},
          .model_types = {"granite"},
          .defaults = R"({"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
                          "residual_multiplier": 1.0, "logits_scaling": 1.0})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(PairQueries, PairKeys), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
