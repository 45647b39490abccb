// MiniMax-M2.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  keys.Set("expert_feed_forward_length", config.Count("intermediate_size"));
  if (const auto rotated = config.OptionalCount("rotary_dim"))
    keys.Set("rope.dimension_count", *rotated);
  keys.Set("expert_gating_func", 2);
}

}  // namespace

Converter ConvertMiniMaxM2() {
  return {.architecture = "minimax-m2",
          .classes = {"MiniMaxM2ForCausalLM"},
          .model_types = {"minimax_m2", "minimax"},
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(), AttentionTensors(), HeadNormTensors(),
                                 RouterTensors("block_sparse_moe.gate.weight",
                                               "block_sparse_moe.e_score_correction_bias"),
                                 ExpertTensors(kMixtralExperts)}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
