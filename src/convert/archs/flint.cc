// Flint. No file of another engine knows it: its keys are those of its relatives.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  keys.Set("attention.sliding_window", config.Count("sliding_window"));
  std::vector<bool> windowed = config.WindowedLayers();
  if (!config.Has("layer_types")) {
    for (size_t i = 0; i < windowed.size(); ++i)
      windowed[i] = !(i < 2 || i % 4 == 1 || i + 1 == windowed.size());
  }
  keys.Set("attention.sliding_window_pattern", windowed);
  keys.Set("expert_gating_func", 2);
}

}  // namespace

Converter ConvertFlint() {
  return {.architecture = "flint",
          .classes = {"FlintForCausalLM"},
          .model_types = {"flint"},
          .defaults = R"({"mlp_only_layers": [0, 1], "norm_topk_prob": true, "head_dim": 128})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join(
              {PreNormTensors(),
               AttentionTensors(),
               HeadNormTensors(),
               {{"self_attn.softmax_offset", "attn_sinks.weight", nullptr, nullptr, Stored::kF32}},
               DenseLayerTensors(),
               RouterTensors("mlp.gate.weight"),
               ExpertTensors(kMlpExperts),
               SharedExpertTensors("mlp.shared_expert.gate_proj.weight",
                                   "mlp.shared_expert.up_proj.weight",
                                   "mlp.shared_expert.down_proj.weight")}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
