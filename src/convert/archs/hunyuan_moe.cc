// Hunyuan-A13B.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  const int64_t width = config.Count("intermediate_size");
  keys.Set("expert_feed_forward_length", width);
  SetMoeKeys(config, keys);
  keys.Remove("expert_shared_count");
  keys.Set("expert_shared_feed_forward_length", width);
  if (config.BoolOr("use_cla", false)) config.Refuse("use_cla", "expected false");
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
