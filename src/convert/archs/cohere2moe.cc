// Command A with experts. Neighbouring elements of a head turn together in checkpoints too.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  if (!config.OptionalNumber("rms_norm_eps"))
    keys.Set("attention.layer_norm_epsilon", config.Number("layer_norm_eps"));
  SetWindowKeysOfBlocks(config, NextToken::kSeesAll, keys);
  SetNextTokenKeys(config, keys);
  SetMoeKeys(config, keys);
  const int64_t width = config.Count("intermediate_size"),
                shared = config.CountOr("num_shared_experts", 0);
  keys.Set("feed_forward_length", config.CountOr("prefix_dense_intermediate_size", width));
  keys.Set("expert_feed_forward_length", width);
  if (shared > 0) {
    if (config.StringOr("shared_expert_combination_strategy", "average") != "average") {
      config.Refuse("shared_expert_combination_strategy",
                    "expected average, as no file of this architecture says otherwise");
    }
    keys.Set("expert_shared_feed_forward_length", shared * width);
  }
  const std::string scoring = config.StringOr("expert_selection_fn", "sigmoid");
  if (scoring != "sigmoid" && scoring != "softmax")
    config.Refuse("expert_selection_fn", "expected sigmoid or softmax");
  keys.Set("expert_gating_func", scoring == "sigmoid" ? 2 : 3);
  keys.Set("logit_scale", config.Number("logit_scale"));
}

}  // namespace

Converter ConvertCohere2Moe() {
  return {.architecture = "cohere2moe",
          .classes = {"Cohere2MoeForCausalLM"},
          .model_types = {"cohere2_moe"},
          .defaults =
              R"({"tie_word_embeddings": true, "norm_topk_prob": true, "layer_norm_eps": 1e-5})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({{{"input_layernorm.weight", "attn_norm.weight"}},
                                 AttentionTensors(),
                                 DenseLayerTensors(),
                                 RouterTensors("mlp.gate.weight"),
                                 ExpertTensors(kMlpExperts),
                                 SharedExpertTensors("mlp.shared_experts.gate_proj.weight",
                                                     "mlp.shared_experts.up_proj.weight",
                                                     "mlp.shared_experts.down_proj.weight"),
                                 NextTokenTensors()}),
          .layers = BlocksWithNextToken,
          .more = EmitRopeTensors};
}

}  // namespace lockstep
