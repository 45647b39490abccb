// DFlash drafts, of z-lab, Xiaomi and Meta. The tokenizer, the embedding and the head are those of the model that they were made for.
#include "convert/converters.h"

namespace lockstep {
namespace {

// Some releases have what is particular to drafts in a set of its own.
Config Together(const Config& config) {
  boost::json::object members = config.members();
  if (const auto nested = config.Find("dflash_config"); nested && nested->value().is_object()) {
    for (const auto& [key, value] : nested->value().as_object()) members[key] = value;
  }
  return {"config.json", members};
}

void SetDraftKeys(const Config& config, int64_t window, Keys& keys) {
  SetDecoderKeys(config, keys);
  const Config draft = Together(config);
  keys.Set("block_size", draft.Count("block_size"));
  // In files 0 is the embedding.
  std::vector<int64_t> layers = draft.Counts("target_layer_ids");
  if (layers.empty())
    config.Refuse("target_layer_ids", "expected the layers of the model that are seen, found none");
  for (int64_t& layer : layers) ++layer;
  keys.Set("target_layers", layers);
  keys.SetFull("tokenizer.ggml.mask_token_id", static_cast<uint32_t>(draft.Count("mask_token_id")));
  if (window == 0) return;
  keys.Set("attention.sliding_window", window);
  keys.Set("attention.sliding_window_pattern", config.WindowedLayers());
}

void SetKeys(const Config& config, Keys& keys) {
  const bool windows = config.BoolOr("use_sliding_window", false);
  SetDraftKeys(config, windows ? config.Count("sliding_window") : 0, keys);
  // Keys of our own: llama.cpp knows none of these.
  if (windows) keys.Set("attention.causal_windows", true);
  const Config draft = Together(config);
  if (const auto scale = draft.OptionalNumber("attention_value_scale"))
    keys.Set("attention.value_scale", *scale);
  if (const auto base = draft.OptionalNumber("backbone_rotary_base"))
    keys.Set("context_rope_freq_base", *base);
}

// Windows are counted on both sides of a token.
void SetTwoSidedKeys(const Config& config, Keys& keys) {
  SetDraftKeys(config, config.Count("sliding_window") + 1, keys);
}

std::string LayerName(const Config&, int64_t layer) { return fmt::format("layers.{}.", layer); }

Converter Row(std::vector<std::string_view> classes, std::vector<std::string_view> model_types,
              std::string_view fused, std::string_view norm,
              void (*keys)(const Config& config, Keys& keys)) {
  return {.architecture = "dflash",
          .classes = std::move(classes),
          .model_types = std::move(model_types),
          .keys = keys,
          .model_tensors = {{fused, "fc.weight"},
                            {norm, "enc.output_norm.weight"},
                            {"norm.weight", "output_norm.weight"}},
          .layer_tensors = Join({PreNormTensors(),
                                 AttentionTensors(),
                                 HeadNormTensors(),
                                 GatedTensors(),
                                 {{"self_attn.attention_sink_bias", "attn_sinks.weight", nullptr,
                                   nullptr, Stored::kF32, true}}}),
          .layer_name = LayerName};
}

}  // namespace

Converter ConvertDflash() {
  return Row({"DFlashDraftModel"}, {}, "fc.weight", "hidden_norm.weight", SetKeys);
}

Converter ConvertTwoSidedDflash() {
  return Row({"MuseGlimmerAssistantModel"}, {"muse_glimmer_assistant"}, "encoder.fc.weight",
             "encoder.output_norm_enc.weight", SetTwoSidedKeys);
}

}  // namespace lockstep
