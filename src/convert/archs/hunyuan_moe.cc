// Hunyuan-A13B.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  const int64_t width = config.CountOr("moe_intermediate_size", config.Count("intermediate_size"));
  keys.Set("expert_feed_forward_length", width);
  keys.Set("expert_shared_feed_forward_length", config.Count("intermediate_size"));
}

}  // namespace

Converter ConvertHunyuanMoe() {
  return {.architecture = "hunyuan-moe",
          .classes = {"HunYuanMoEV1ForCausalLM"},
          .model_types = {"hunyuan_v1_moe"},
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(),
                                 AttentionTensors(),
                                 {{"self_attn.query_layernorm.weight", "attn_q_norm.weight"},
                                  {"self_attn.key_layernorm.weight", "attn_k_norm.weight"}},
                                 RouterTensors("mlp.gate.wg.weight"),
                                 ExpertTensors(kMlpExperts),
                                 SharedExpertTensors("mlp.shared_mlp.gate_proj.weight",
                                                     "mlp.shared_mlp.up_proj.weight",
                                                     "mlp.shared_mlp.down_proj.weight")}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
