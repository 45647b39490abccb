// Qwen3 with experts.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetUnwindowedKeys(config, keys);
  SetMoeKeys(config, keys);
}

}  // namespace

Converter ConvertQwen3Moe() {
  return {.architecture = "qwen3moe",
          .classes = {"Qwen3MoeForCausalLM"},
          .model_types = {"qwen3_moe"},
          .defaults = R"({"norm_topk_prob": false})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(), HeadNormTensors(), DenseLayerTensors(),
                    RouterTensors("mlp.gate.weight"), ExpertTensors(kMlpExperts)}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
