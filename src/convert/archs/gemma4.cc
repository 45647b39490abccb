// Gemma 4 text: heads of two widths, keys shared between layers, inputs of each layer, experts beside the feed-forward.
#include <algorithm>

#include "convert/moe_rules.h"

namespace lockstep {
namespace {

// Layers behind the first of these have no keys of their own.
int64_t OwnKeyLayers(const Config& config) {
  return config.layers() - std::min(config.layers(), config.CountOr("num_kv_shared_layers", 0));
}
bool HasOwnKeys(const Place& place) { return place.layer < OwnKeyLayers(place.config); }
bool SharesKeys(const Place& place) { return !HasOwnKeys(place); }
bool HasExperts(const Place& place) { return place.config.BoolOr("enable_moe_block", false); }
bool HasLayerInputs(const Place& place) {
  return place.config.CountOr("hidden_size_per_layer_input", 0) != 0;
}

// What layers that see all have of their own: a key of releases, or in transformers' later spelling a key of those layers.
std::optional<int64_t> OfWideLayers(const Config& config, const char* released, const char* key) {
  if (const auto count = config.OptionalCount(released)) return count;
  const auto by_layer = config.Find("per_layer_config");
  if (!by_layer) return std::nullopt;
  const std::vector<bool> windowed = config.WindowedLayers();
  const auto wide = std::ranges::find(windowed, false) - windowed.begin();
  const auto own = by_layer->Find(std::to_string(wide));
  const auto count = own ? own->Find(key) : std::nullopt;
  return count ? std::optional(count->Count(INT32_MAX)) : std::nullopt;
}

int64_t WideHead(const Config& config) {
  return OfWideLayers(config, "global_head_dim", "head_dim").value_or(config.head_dim());
}

void SetHeadKeys(const Config& config, Keys& keys) {
  const int64_t wide = WideHead(config), narrow = config.head_dim();
  keys.Set("attention.key_length", wide);
  keys.Set("attention.value_length", wide);
  keys.Set("attention.key_length_swa", narrow);
  keys.Set("attention.value_length_swa", narrow);
  // Of wide heads all turn, most of them by nothing: rope_freqs.
  keys.Set("rope.dimension_count", wide);
  const Config rope = config.Rope("sliding_attention");
  keys.Set("rope.dimension_count_swa",
           static_cast<int64_t>(static_cast<double>(narrow) * rope.NumberOr("partial_rotary_factor", 1)));
  keys.Set("rope.freq_base_swa", rope.NumberOr("rope_theta", 10000));
}

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetHeadKeys(config, keys);
  keys.Set("attention.sliding_window", config.Count("sliding_window"));
  const std::vector<bool> windowed = config.WindowedLayers();
  keys.Set("attention.sliding_window_pattern", windowed);
  keys.Set("attention.shared_kv_layers", config.layers() - OwnKeyLayers(config));
  keys.Set("embedding_length_per_layer_input", config.CountOr("hidden_size_per_layer_input", 0));
  if (const auto heads =
          OfWideLayers(config, "num_global_key_value_heads", "num_key_value_heads")) {
    std::vector<int64_t> kv_heads;
    for (const bool window : windowed) {
      kv_heads.push_back(window ? config.Count("num_key_value_heads") : *heads);
    }
    keys.Set("attention.head_count_kv", kv_heads);
  }
  if (config.BoolOr("use_double_wide_mlp", false)) {
    std::vector<int64_t> widths;
    for (int64_t i = 0; i < config.layers(); ++i) {
      widths.push_back(config.Count("intermediate_size") * (i < OwnKeyLayers(config) ? 1 : 2));
    }
    keys.Set("feed_forward_length", widths);
  }
  if (const auto cap = config.OptionalNumber("final_logit_softcapping")) {
    keys.Set("final_logit_softcapping", *cap);
  }
  if (!config.BoolOr("enable_moe_block", false)) return;
  keys.Set("expert_count", config.Count("num_experts"));
  keys.Set("expert_used_count", config.Count("top_k_experts"));
  keys.Set("expert_feed_forward_length", config.Count("moe_intermediate_size"));
}

// "proportional": the first share of a wide head's pairs turn as if all did, the others by a frequency of next to nothing.
void EmitFrequencies(Recipe& recipe) {
  const Config& config = recipe.config();
  const double share = config.Rope().NumberOr("partial_rotary_factor", 1);
  const auto pairs = static_cast<size_t>(WideHead(config) / 2);
  std::vector<float> factors(pairs, 1e30f);
  const double turning = static_cast<double>(pairs) * share;
  if (!(turning >= 0 && turning <= static_cast<double>(pairs))) {
    config.Refuse("partial_rotary_factor", "expected 0 to 1");
  }
  std::fill_n(factors.begin(), static_cast<size_t>(turning), 1.0f);
  recipe.Emit("rope_freqs.weight", Values::Of("rope_freqs", {factors.size()}, factors));
}

std::vector<TensorRule> GemmaAttention() {
  return {{"self_attn.q_proj.*", "attn_q.*"},
          {"self_attn.k_proj.*", "attn_k.*", nullptr, HasOwnKeys},
          {"self_attn.v_proj.*", "attn_v.*", nullptr, HasOwnKeys, Stored::kByType, true},
          {"self_attn.o_proj.*", "attn_output.*"},
          {"self_attn.q_norm.weight", "attn_q_norm.weight"},
          {"self_attn.k_norm.weight", "attn_k_norm.weight", nullptr, HasOwnKeys},
          {"self_attn.k_proj.*", "", nullptr, SharesKeys},
          {"self_attn.v_proj.*", "", nullptr, SharesKeys},
          {"self_attn.k_norm.weight", "", nullptr, SharesKeys}};
}

std::vector<TensorRule> Norms() {
  return {{"input_layernorm.weight", "attn_norm.weight"},
          {"post_attention_layernorm.weight", "post_attention_norm.weight"},
          {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
          {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
          {"layer_scalar", "layer_output_scale.weight", nullptr, nullptr, Stored::kF32, true}};
}

std::vector<TensorRule> ExpertsBeside() {
  return {{"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", nullptr, HasExperts},
          {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", nullptr, HasExperts},
          {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", nullptr, HasExperts},
          {"router.proj.weight", "ffn_gate_inp.weight", nullptr, HasExperts, Stored::kF32},
          {"router.scale", "ffn_gate_inp.scale", nullptr, HasExperts},
          {"router.per_expert_scale", "ffn_down_exps.scale", nullptr, HasExperts},
          {"experts.gate_up_proj", "ffn_gate_up_exps.weight", nullptr, HasExperts},
          {"experts.down_proj", "ffn_down_exps.weight", nullptr, HasExperts}};
}

std::vector<TensorRule> LayerInputs() {
  return {{"per_layer_input_gate.weight", "inp_gate.weight", nullptr, HasLayerInputs},
          {"per_layer_projection.weight", "proj.weight", nullptr, HasLayerInputs},
          {"post_per_layer_input_norm.weight", "post_norm.weight", nullptr, HasLayerInputs}};
}

std::vector<TensorRule> TokenInputs() {
  return {{"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", nullptr, HasLayerInputs},
          {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight", nullptr, HasLayerInputs},
          {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", nullptr, HasLayerInputs}};
}

// Of a release whose head chooses among centers of tokens there is more than files say.
void SetAssistantKeys(const Config& config, Keys& keys) {
  if (config.BoolOr("use_ordered_embeddings", false)) {
    config.Refuse("use_ordered_embeddings",
                  "expected false, as no file says how a head is ordered");
  }
  SetKeys(config, keys);
}

std::vector<TensorRule> Projections() {
  return {{"pre_projection.weight", "nextn.pre_projection.weight"},
          {"post_projection.weight", "nextn.post_projection.weight"}};
}

}  // namespace

Converter ConvertGemma4() {
  return {.architecture = "gemma4",
          .classes = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"},
          .model_types = {"gemma4_text", "gemma4"},
          .defaults = R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-6})",
          .keys = SetKeys,
          .model_tensors = Join({ModelTensors(), TokenInputs()}),
          .layer_tensors = Join({GemmaAttention(), GatedTensors(), Norms(), ExpertsBeside(), LayerInputs()}),
          .more = EmitFrequencies};
}

// The assistant's layers have no keys of their own.
Converter ConvertGemma4Assistant() {
  return {.architecture = "gemma4-assistant",
          .classes = {"Gemma4AssistantForCausalLM"},
          .model_types = {"gemma4_assistant"},
          .defaults = R"({"tie_word_embeddings": true, "rms_norm_eps": 1e-6})",
          .keys = SetAssistantKeys,
          .model_tensors = Join({ModelTensors(), Projections()}),
          .layer_tensors = Join({GemmaAttention(), GatedTensors(), Norms()}),
          .more = EmitFrequencies,
          .of_model = true};
}

}  // namespace lockstep
