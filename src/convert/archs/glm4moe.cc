// GLM 4.5 and 4.6.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  SetNextTokenKeys(config, keys);
  keys.Set("expert_gating_func", 2);
}

bool NormsHeads(const Place& place) { return place.config.BoolOr("use_qk_norm", false); }

}  // namespace

Converter ConvertGlm4Moe() {
  return {
      .architecture = "glm4moe",
      .classes = {"Glm4MoeForCausalLM"},
      .model_types = {"glm4_moe"},
      .defaults =
          R"({"partial_rotary_factor": 0.5, "first_k_dense_replace": 1, "routed_scaling_factor": 1.0,
                          "norm_topk_prob": true, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "head_dim": 128})",
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors =
          Join({{{"input_layernorm.weight", "attn_norm.weight"},
                 {"post_attention_layernorm.weight", "post_attention_norm.weight"},
                 {"self_attn.q_norm.weight", "attn_q_norm.weight", nullptr, NormsHeads},
                 {"self_attn.k_norm.weight", "attn_k_norm.weight", nullptr, NormsHeads}},
                AttentionTensors(),
                DenseLayerTensors(),
                RouterTensors("mlp.gate.weight", "mlp.gate.e_score_correction_bias"),
                ExpertTensors(kMlpExperts),
                SharedExpertTensors("mlp.shared_experts.gate_proj.weight",
                                    "mlp.shared_experts.up_proj.weight",
                                    "mlp.shared_experts.down_proj.weight"),
                NextTokenTensors()}),
      .layers = BlocksWithNextToken,
      .more = EmitRopeTensors};
}

}  // namespace lockstep
