// Laguna.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

int64_t RotatedOf(const Config& config, const Config& rope) {
  return static_cast<int64_t>(static_cast<double>(config.head_dim()) *
                              rope.NumberOr("partial_rotary_factor", 1));
}

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  if (const auto heads = config.Counts("num_attention_heads_per_layer"); !heads.empty())
    keys.Set("attention.head_count", heads);
  if (config.CountOr("sliding_window", 0) > 0) {
    const Config windowed = config.Rope("sliding_attention");
    keys.Set("attention.sliding_window", config.Count("sliding_window"));
    keys.Set("attention.sliding_window_pattern", config.WindowedLayers());
    keys.Set("rope.freq_base_swa", windowed.NumberOr("rope_theta", 10000));
    keys.Set("rope.dimension_count_swa", RotatedOf(config, windowed));
  }
  if (config.BoolOr("moe_apply_router_weight_on_input", false)) {
    config.Refuse("moe_apply_router_weight_on_input",
                  "expected false, as no release says otherwise");
  }
  if (const double cap = config.NumberOr("moe_router_logit_softcapping", 0); cap != 0)
    keys.Set("router_logit_softcapping", cap);
  keys.Set("expert_weights_norm", true);
  keys.Set("expert_gating_func", 2);
}

}  // namespace

Converter ConvertLaguna() {
  return {.architecture = "laguna",
          .classes = {"LagunaForCausalLM"},
          .model_types = {"laguna"},
          .defaults = R"({"moe_routed_scaling_factor": 1.0})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(),
                    AttentionTensors(),
                    HeadNormTensors(),
                    {{"self_attn.g_proj.weight", "attn_gate.weight"}},
                    DenseLayerTensors(),
                    RouterTensors("mlp.gate.weight", "mlp.experts.e_score_correction_bias"),
                    ExpertTensors(kMlpExperts),
                    SharedExpertTensors("mlp.shared_expert.gate_proj.weight",
                                        "mlp.shared_expert.up_proj.weight",
                                        "mlp.shared_expert.down_proj.weight")}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
