// Mellum 2: Qwen3 with experts and windows.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetWindowKeys(config, 4, keys);
  SetMoeKeys(config, keys);
  SetNextTokenKeys(config, keys);
  keys.Set("rope.freq_base_swa", config.Rope("sliding_attention").NumberOr("rope_theta", 10000));
  // The next-token block has a window.
  std::vector<bool> windowed = config.WindowedLayers();
  windowed.resize(static_cast<size_t>(BlocksWithNextToken(config)), true);
  keys.Set("attention.sliding_window_pattern", windowed);
}

std::string LayerName(const Config& config, int64_t layer) {
  const bool next_token = layer >= config.layers();
  return fmt::format("{}.layers.{}.", next_token ? "mtp" : "model",
                     next_token ? layer - config.layers() : layer);
}

void More(Recipe& recipe) {
  EmitRopeTensors(recipe);
  const Config& config = recipe.config();
  if (BlocksWithNextToken(config) == config.layers()) return;
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"fc", "eh_proj"},
      {"pre_fc_norm_embedding", "enorm"},
      {"pre_fc_norm_hidden", "hnorm"},
      {"norm", "shared_head_norm"}};
  for (const auto& [from, to] : kNames) {
    recipe.Emit(fmt::format("blk.{}.nextn.{}.weight", config.layers(), to),
                recipe.Take(fmt::format("mtp.{}.weight", from)));
  }
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
          .layer_name = LayerName,
          .more = More};
}

}  // namespace lockstep
