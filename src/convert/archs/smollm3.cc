// SmolLM3: Llama with layers that are not told positions.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetUnwindowedKeys(config, keys);
  // 1 where a layer rotates. A key of our own, for other patterns than llama.cpp's every fourth.
  const std::vector<int64_t> rotates = config.Counts("no_rope_layers");
  for (size_t i = 0; i < rotates.size(); ++i) {
    if ((rotates[i] != 0) != ((i + 1) % 4 != 0)) return keys.Set("attention.rope_layers", rotates);
  }
  if (!rotates.empty()) return;
  const int64_t interval = config.CountOr("no_rope_layer_interval", 4);
  if (interval == 4) return;
  std::vector<int64_t> every;
  for (int64_t i = 0; i < config.layers(); ++i) {
    every.push_back(interval == 0 || (i + 1) % interval != 0);
  }
  keys.Set("attention.rope_layers", every);
}

}  // namespace

Converter ConvertSmollm3() {
  return {.architecture = "smollm3",
          .classes = {"SmolLM3ForCausalLM"},
          .model_types = {"smollm3"},
          .defaults = R"({"tie_word_embeddings": true})",
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({PreNormTensors(), AttentionTensors(PairQueries, PairKeys), GatedTensors()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
