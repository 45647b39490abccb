// Granite 3 dense: Llama with multipliers.
#include "convert/archs/granite.h"

namespace lockstep {

void SetGraniteKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  keys.Set("attention.scale", config.Number("attention_multiplier"));
  keys.Set("embedding_scale", config.Number("embedding_multiplier"));
  keys.Set("residual_scale", config.Number("residual_multiplier"));
  keys.Set("logit_scale", config.Number("logits_scaling"));
}

Converter ConvertGranite() {
  return {.architecture = "granite",
          .classes = {"GraniteForCausalLM"},
          .model_types = {"granite"},
          .defaults = kGraniteDefaults,
          .keys = SetGraniteKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(PairQueries, PairKeys), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
