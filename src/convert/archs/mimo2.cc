// MiMo-V2-Flash.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

// Kinds of layers, as transformers 5 or as releases list them.
std::vector<bool> Windowed(const Config& config) {
  if (config.Has("layer_types")) return config.WindowedLayers();
  std::vector<bool> windowed;
  for (int64_t kind : config.Counts("hybrid_layer_pattern")) windowed.push_back(kind != 0);
  if (std::ssize(windowed) != config.layers()) {
    config.Refuse("layer_types",
                  fmt::format("expected {} kinds, found {}", config.layers(), windowed.size()));
  }
  return windowed;
}

// Keys by layer, of the layers and of next-token blocks behind them.
void SetLayerKeys(const Config& config, int64_t next_token, Keys& keys) {
  std::vector<bool> windowed = Windowed(config);
  windowed.resize(windowed.size() + static_cast<size_t>(next_token), true);
  const int64_t kv_heads = config.Count("num_key_value_heads"),
                of_windowed = config.CountOr("swa_num_key_value_heads", 2 * kv_heads);
  std::vector<int64_t> heads;
  for (bool window : windowed) heads.push_back(window ? of_windowed : kv_heads);
  keys.Set("attention.head_count_kv", heads);
  keys.Set("attention.sliding_window_pattern", windowed);
  if (next_token == 0) return;
  keys.Set("block_count", config.layers() + next_token);
  keys.Set("nextn_predict_layers", next_token);
}

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  // Releases count the positions before a query, and themselves in another key.
  const auto before = config.OptionalCount("sliding_window_size");
  keys.Set("attention.sliding_window", before ? *before + 1 : config.Count("sliding_window"));
  keys.Set("attention.value_length", config.Count("v_head_dim"));
  keys.Set("attention.value_scale", config.Number("attention_value_scale"));
  keys.Set("attention.layer_norm_rms_epsilon",
           config.Number({"rms_norm_eps", "layernorm_epsilon"}));
  keys.Set("rope.freq_base_swa",
           config.NumberOr("swa_rope_theta",
                           config.Rope("sliding_attention").NumberOr("rope_theta", 10000)));
  keys.Set("expert_gating_func", 2);
}

// Next-token blocks: windowed, dense; the configuration does not say how many there are.
void EmitNextToken(Recipe& recipe) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"eh_proj.weight", "nextn.eh_proj.weight"},
      {"enorm.weight", "nextn.enorm.weight"},
      {"hnorm.weight", "nextn.hnorm.weight"},
      {"final_layernorm.weight", "nextn.shared_head_norm.weight"},
      {"input_layernorm.weight", "attn_norm.weight"},
      {"pre_mlp_layernorm.weight", "ffn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"self_attn.attention_sink_bias", "attn_sinks.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"}};
  const Config& config = recipe.config();
  int64_t blocks = 0;
  for (; recipe.Has(fmt::format("model.mtp.layers.{}.eh_proj.weight", blocks)); ++blocks) {
    for (const auto& [from, to] : kNames) {
      recipe.Emit(fmt::format("blk.{}.{}", config.layers() + blocks, to),
                  recipe.Take(fmt::format("model.mtp.layers.{}.{}", blocks, from)));
    }
  }
  SetLayerKeys(config, blocks, recipe.keys());
  EmitRopeTensors(recipe);
}

bool HasSinks(const Place& place) {
  return Windowed(place.config)[static_cast<size_t>(place.layer)];
}

}  // namespace

Converter ConvertMimo2() {
  return {
      .architecture = "mimo2",
      .classes = {"MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"},
      .model_types = {"mimo_v2_flash"},
      .defaults =
          R"({"routed_scaling_factor": 1.0, "attention_value_scale": 0.707, "partial_rotary_factor": 0.334,
                          "norm_topk_prob": true})",
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors = Join({PreNormTensors(),
                             AttentionTensors(),
                             {{"self_attn.attention_sink_bias", "attn_sinks.weight", nullptr,
                               HasSinks, Stored::kF32}},
                             DenseLayerTensors(),
                             RouterTensors("mlp.gate.weight", "mlp.gate.e_score_correction_bias"),
                             ExpertTensors(kMlpExperts)}),
      .more = EmitNextToken};
}

}  // namespace lockstep
