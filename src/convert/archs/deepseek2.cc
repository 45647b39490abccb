// DeepSeek-V2 and V3, and what transformers runs like them: GLM-4.7-Flash, Kimi K2.
#include "convert/latent_rules.h"
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetLatentKeys(config, keys);
  SetMoeKeys(config, keys);
  keys.Set("expert_gating_func", config.String("scoring_func") == "sigmoid" ? 2 : 1);
  if (config.StringOr("topk_method", "") == "greedy") {
    keys.Remove("expert_group_count");
    keys.Remove("expert_group_used_count");
  }
}

// Rows differ in what their releases leave out.
Converter Row(std::vector<std::string_view> classes, std::vector<std::string_view> model_types,
              std::string_view defaults) {
  return {.architecture = "deepseek2",
          .classes = std::move(classes),
          .model_types = std::move(model_types),
          .defaults = defaults,
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({LatentTensors(), LatentMoeTensors()}),
          .layers = BlocksWithNextToken};
}

}  // namespace

Converter ConvertDeepseek2() {
  return Row(
      {"DeepseekV2ForCausalLM"}, {"deepseek_v2"},
      R"({"scoring_func": "softmax", "topk_method": "greedy", "first_k_dense_replace": 0, "routed_scaling_factor": 1.0, "norm_topk_prob": false})");
}

Converter ConvertDeepseek3() {
  return Row(
      {"DeepseekV3ForCausalLM", "KimiK2ForCausalLM"}, {"deepseek_v3", "kimi_k2"},
      R"({"scoring_func": "sigmoid", "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "n_group": 8, "topk_group": 4})");
}

Converter ConvertGlm4MoeLite() {
  return Row(
      {"Glm4MoeLiteForCausalLM"}, {"glm4_moe_lite"},
      R"({"scoring_func": "sigmoid", "first_k_dense_replace": 1, "routed_scaling_factor": 1.8, "norm_topk_prob": true})");
}

}  // namespace lockstep
