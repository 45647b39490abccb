// GLM-5: as DeepSeek-V3.2, but layers may see what an earlier layer's indexer selected.
#include <algorithm>

#include "convert/latent_rules.h"
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetIndexedLatentKeys(config, keys);
  std::vector<bool> own;
  for (const std::string& type : config.Strings("indexer_types")) own.push_back(type == "full");
  if (std::ranges::find(own, false) != own.end()) keys.Set("attention.indexer.types", own);
}

}  // namespace

Converter ConvertGlmDsa() {
  return {
      .architecture = "glm-dsa",
      .classes = {"GlmMoeDsaForCausalLM"},
      .model_types = {"glm_moe_dsa"},
      .defaults =
          R"({"first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "norm_topk_prob": true, "n_group": 1, "topk_group": 1,
                          "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048})",
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors = Join({LatentTensors(), IndexerTensors(), LatentMoeTensors()}),
      .layers = BlocksWithNextToken};
}

}  // namespace lockstep
