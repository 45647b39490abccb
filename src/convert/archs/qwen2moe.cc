// Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts, and a shared expert behind a gate of its own.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetUnwindowedKeys(config, keys);
  SetMoeKeys(config, keys);
}

Values Flat(const Values& values, const Place&) { return Reshape(values, {values.size()}); }

}  // namespace

Converter ConvertQwen2Moe() {
  return {.architecture = "qwen2moe",
          .classes = {"Qwen2MoeForCausalLM"},
          .model_types = {"qwen2_moe"},
          .defaults = R"({"norm_topk_prob": false, "num_experts": 60, "num_experts_per_tok": 4,
                          "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(),
                                 AttentionTensors(),
                                 DenseLayerTensors(),
                                 RouterTensors("mlp.gate.weight"),
                                 ExpertTensors(kMlpExperts),
                                 SharedExpertTensors("mlp.shared_expert.gate_proj.weight",
                                                     "mlp.shared_expert.up_proj.weight",
                                                     "mlp.shared_expert.down_proj.weight"),
                                 {{"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight",
                                   Flat, IsSparse, Stored::kF32}}}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
