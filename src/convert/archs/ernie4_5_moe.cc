// ERNIE 4.5 with experts. Neighbouring elements of a head turn together in checkpoints too.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  SetNextTokenKeys(config, keys);
  if (const int64_t shared = config.CountOr("moe_num_shared_experts", 0); shared > 0) {
    keys.Set("expert_shared_feed_forward_length", shared * config.Count("moe_intermediate_size"));
    keys.Remove("expert_shared_count");
  }
  keys.Set("interleave_moe_layer_step",
           std::max<int64_t>(config.CountOr("moe_layer_interval", 1), 1));
}

// Next-token blocks are dense layers; what they share has names of its own.
std::string LayerName(const Config& config, int64_t layer) {
  const bool next_token = layer >= config.layers();
  return fmt::format("model.{}.{}.", next_token ? "mtp_block" : "layers",
                     next_token ? layer - config.layers() : layer);
}

void More(Recipe& recipe) {
  EmitRopeTensors(recipe);
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"mtp_linear_proj", "eh_proj"}, {"mtp_emb_norm", "enorm"}, {"mtp_hidden_norm", "hnorm"}};
  const int64_t layers = recipe.config().layers();
  for (int64_t i = layers; i < BlocksWithNextToken(recipe.config()); ++i) {
    for (const auto& [from, to] : kNames) {
      recipe.Emit(fmt::format("blk.{}.nextn.{}.weight", i, to),
                  recipe.Take(fmt::format("model.{}.{}.weight", from, i - layers)));
    }
  }
}

}  // namespace

Converter ConvertErnie45Moe() {
  return {
      .architecture = "ernie4_5-moe",
      .classes = {"Ernie4_5_MoeForCausalLM"},
      .model_types = {"ernie4_5_moe"},
      .defaults =
          R"({"moe_layer_start_index": 1, "moe_layer_interval": 1, "tie_word_embeddings": true})",
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors =
          Join({PreNormTensors(), AttentionTensors(), DenseLayerTensors(),
                RouterTensors("mlp.gate.weight", "mlp.moe_statics.e_score_correction_bias"),
                ExpertTensors(kMlpExperts),
                SharedExpertTensors("mlp.shared_experts.gate_proj.weight",
                                    "mlp.shared_experts.up_proj.weight",
                                    "mlp.shared_experts.down_proj.weight")}),
      .layers = BlocksWithNextToken,
      .layer_name = LayerName,
      .more = More};
}

}  // namespace lockstep
