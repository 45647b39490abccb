// Mistral 4: the DeepSeek layer with an attention temperature that grows with position; soft-max routing.
#include "convert/latent_rules.h"
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetLatentKeys(config, keys);
  SetMoeKeys(config, keys);
  keys.Set("expert_gating_func", 1);
  // Positions are counted in the rotary scaling's original context.
  keys.Set("attention.temperature_scale", config.Rope().Number("llama_4_scaling_beta"));
  keys.Set("attention.temperature_length", config.Rope().Count("original_max_position_embeddings"));
}

}  // namespace

Converter ConvertMistral4() {
  return {
      .architecture = "mistral4",
      .classes = {"Mistral4ForCausalLM"},
      .model_types = {"mistral4"},
      .defaults =
          R"({"first_k_dense_replace": 0, "routed_scaling_factor": 1.0, "norm_topk_prob": true, "n_group": 1, "topk_group": 1})",
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors =
          Join({LatentTensors(),
                LatentMoeTensors(
                    {{"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", nullptr, IsSparse},
                     {"mlp.experts.down_proj", "ffn_down_exps.weight", nullptr, IsSparse}})}),
      .layers = BlocksWithNextToken};
}

}  // namespace lockstep
