// DeepSeek-V3.2.
#include "convert/latent_rules.h"
#include "convert/moe_rules.h"

namespace lockstep {
Converter ConvertDeepseek32() {
  return {
      .architecture = "deepseek32",
      .classes = {"DeepseekV32ForCausalLM"},
      .model_types = {"deepseek_v32"},
      .defaults =
          R"({"first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "n_group": 8, "topk_group": 4,
                          "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048})",
      .keys = SetIndexedLatentKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors = Join({LatentTensors(), IndexerTensors(), LatentMoeTensors()}),
      .layers = BlocksWithNextToken};
}

}  // namespace lockstep
