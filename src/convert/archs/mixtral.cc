// Mixtral: Llama with experts, in files an architecture of the same name.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMistralWindow(config, keys);
  SetMoeKeys(config, keys);
}

}  // namespace

Converter ConvertMixtral() {
  return {.architecture = "llama",
          .classes = {"MixtralForCausalLM"},
          .model_types = {"mixtral"},
          .defaults = R"({"num_local_experts": 8, "num_experts_per_tok": 2, "rope_theta": 1e6})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(PairQueries, PairKeys),
                    RouterTensors("block_sparse_moe.gate.weight"), ExpertTensors(kMixtralExperts)}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
