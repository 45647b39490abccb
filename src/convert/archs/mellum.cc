// Mellum 2: Qwen3 with experts and windows.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetWindowKeysOfBlocks(config, NextToken::kWindowed, keys);
  SetMoeKeys(config, keys);
  SetNextTokenKeys(config, keys);
  keys.Set("rope.freq_base_swa", config.Rope("sliding_attention").NumberOr("rope_theta", 10000));
}

void More(Recipe& recipe) {
  EmitRopeTensors(recipe);
  EmitMtpTensors(recipe, nullptr);
}

}  // namespace

Converter ConvertMellum() {
  return {.architecture = "mellum",
          .classes = {"MellumForCausalLM"},
          .model_types = {"mellum"},
          .defaults = R"({"norm_topk_prob": true})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(), HeadNormTensors(), DenseLayerTensors(),
                    RouterTensors("mlp.gate.weight"), ExpertTensors(kMlpExperts)}),
          .layers = BlocksWithNextToken,
          .layer_name = MtpLayerName,
          .more = More};
}

}  // namespace lockstep
