// ERNIE 4.5 with experts. Neighbouring elements of a head turn together in checkpoints too.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  if (const int64_t shared = config.CountOr("moe_num_shared_experts", 0); shared > 0) {
    keys.Set("expert_shared_feed_forward_length", shared * config.Count("moe_intermediate_size"));
    keys.Remove("expert_shared_count");
  }
  keys.Set("interleave_moe_layer_step",
           std::max<int64_t>(config.CountOr("moe_layer_interval", 1), 1));
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
      .more = EmitRopeTensors};
}

}  // namespace lockstep
