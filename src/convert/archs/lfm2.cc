// LFM2: short convolutions where "layer_types" says so, attention elsewhere.
#include <algorithm>

#include "convert/recurrent_rules.h"

namespace lockstep {
namespace {

std::vector<std::string> LayerTypes(const Config& config) {
  std::vector<std::string> types = config.Strings("layer_types");
  if (types.empty()) {
    // Older releases list the layers that are attention.
    const std::vector<int64_t> full = config.Counts("full_attn_idxs");
    for (int64_t i = 0; i < config.layers(); ++i)
      types.push_back(std::ranges::find(full, i) != full.end() ? "full_attention" : "conv");
  }
  if (std::ssize(types) != config.layers()) {
    config.Refuse("layer_types",
                  fmt::format("expected {} entries, found {}", config.layers(), types.size()));
  }
  return types;
}

bool IsConv(const Place& place) {
  return LayerTypes(place.config)[static_cast<size_t>(place.layer)] == "conv";
}
bool IsAttention(const Place& place) { return !IsConv(place); }

// Checkpoints may state the width before it is brought to two thirds and rounded.
int64_t FeedForwardWidth(const Config& config) {
  int64_t width = config.Count({"intermediate_size", "block_ff_dim"});
  if (!config.BoolOr("block_auto_adjust_ff_dim", true)) return width;
  width = 2 * width / 3;
  if (const auto factor = config.OptionalNumber("block_ffn_dim_multiplier"))
    width = static_cast<int64_t>(*factor * static_cast<double>(width));
  const int64_t unit = std::max<int64_t>(config.CountOr("block_multiple_of", 256), 1);
  return (width + unit - 1) / unit * unit;
}

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  std::vector<int64_t> kv_heads;
  for (const std::string& type : LayerTypes(config))
    kv_heads.push_back(type == "conv" ? 0 : config.Count("num_key_value_heads"));
  keys.Set("attention.head_count_kv", kv_heads);
  keys.Set("attention.layer_norm_rms_epsilon", config.Number({"norm_eps", "block_norm_eps"}));
  keys.Set("feed_forward_length", FeedForwardWidth(config));
  keys.Set("shortconv.l_cache", config.Count("conv_L_cache"));
}

}  // namespace

Converter ConvertLfm2() {
  return {.architecture = "lfm2",
          .classes = {"Lfm2ForCausalLM"},
          .model_types = {"lfm2"},
          .defaults = R"({"tie_word_embeddings": true, "norm_eps": 1e-5, "conv_L_cache": 3,
                          "rope_theta": 1e6})",
          .keys = SetKeys,
          .model_tensors = {{"model.embed_tokens.weight", "token_embd.weight"},
                            {"model.embedding_norm.weight", "token_embd_norm.weight"},
                            {"lm_head.*", ""}},
          .layer_tensors = {
              {"operator_norm.weight", "attn_norm.weight"},
              {"ffn_norm.weight", "ffn_norm.weight"},
              {"feed_forward.w1.weight", "ffn_gate.weight"},
              {"feed_forward.w3.weight", "ffn_up.weight"},
              {"feed_forward.w2.weight", "ffn_down.weight"},
              {"conv.conv.weight", "shortconv.conv.weight", Filters, IsConv, Stored::kF32},
              {"conv.conv.bias", "shortconv.conv.bias", nullptr, IsConv, Stored::kF32, true},
              {"conv.in_proj.*", "shortconv.in_proj.*", nullptr, IsConv},
              {"conv.out_proj.*", "shortconv.out_proj.*", nullptr, IsConv},
              {"self_attn.q_proj.weight", "attn_q.weight", nullptr, IsAttention},
              {"self_attn.k_proj.weight", "attn_k.weight", nullptr, IsAttention},
              {"self_attn.v_proj.weight", "attn_v.weight", nullptr, IsAttention},
              {"self_attn.out_proj.weight", "attn_output.weight", nullptr, IsAttention},
              {"self_attn.q_layernorm.weight", "attn_q_norm.weight", nullptr, IsAttention},
              {"self_attn.k_layernorm.weight", "attn_k_norm.weight", nullptr, IsAttention}}};
}

}  // namespace lockstep
