// What most architectures share: keys, tables of tensors, transforms.
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "convert/converters.h"

namespace lockstep {
namespace {

// Whether the output head is the embedding; a key that is absent leaves it to the tensors.
constexpr const char* kTied = "tie_word_embeddings";
bool SaysTied(const Place& place) { return place.config.BoolOr(kTied, false); }
bool SaysUntied(const Place& place) { return !place.config.BoolOr(kTied, true); }
bool SaysNothing(const Place& place) { return !place.config.Has(kTied); }

// "rope.scaling.*" of YaRN (Peng et al. 2023) as llama.cpp spells it.
void SetYarnKeys(const Config& rope, Keys& keys) {
  keys.Set("rope.scaling.type", "yarn");
  keys.Set("rope.scaling.factor", rope.Number("factor"));
  keys.Set("rope.scaling.original_context_length", rope.Count("original_max_position_embeddings"));
  static constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"attention_factor", "rope.scaling.yarn_attn_factor"},
      {"beta_fast", "rope.scaling.yarn_beta_fast"},
      {"beta_slow", "rope.scaling.yarn_beta_slow"},
      {"mscale_all_dim", "rope.scaling.yarn_log_multiplier"}};
  for (const auto& [name, key] : kNumbers) {
    if (const auto number = rope.OptionalNumber(name)) keys.Set(key, *number);
  }
  // A key of our own: llama.cpp always rounds the ramp's ends.
  if (!rope.BoolOr("truncate", true)) keys.Set("rope.scaling.yarn_truncate", false);
}

void SetLinearKeys(const Config& rope, Keys& keys) {
  keys.Set("rope.scaling.type", "linear");
  keys.Set("rope.scaling.factor", rope.Number("factor"));
}

// LongRoPE (Ding et al. 2024). Attention is scaled by how far the context was stretched.
void SetLongRopeKeys(const Config& rope, Keys& keys) {
  keys.Set("rope.scaling.type", "longrope");
  keys.Set("rope.scaling.original_context_length", rope.Count("original_max_position_embeddings"));
  if (const auto factor = rope.OptionalNumber("attention_factor")) {
    keys.Set("rope.scaling.attn_factor", *factor);
    return;
  }
  const double original = static_cast<double>(rope.Count("original_max_position_embeddings"));
  const double stretch = static_cast<double>(rope.Count("max_position_embeddings")) / original;
  keys.Set("rope.scaling.attn_factor",
           stretch > 1 ? std::sqrt(1 + std::log(stretch) / std::log(original)) : 1.0);
}

// Llama 3 (Grattafiori et al. 2024): what each frequency is divided by, [n_rot / 2].
std::vector<float> Llama3Factors(const Config& rope, int64_t n_rot) {
  const double base = rope.Number("rope_theta"), factor = rope.Number("factor");
  const double low = rope.Number("low_freq_factor"), high = rope.Number("high_freq_factor");
  const double context = rope.Number("original_max_position_embeddings");
  if (!(high > low)) rope.Refuse("high_freq_factor", "expected more than low_freq_factor");
  if (!(factor > 0)) rope.Refuse("factor", "expected more than 0");
  std::vector<float> factors;
  for (int64_t i = 0; i < n_rot; i += 2) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(n_rot));
    const double turns = context * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
  }
  return factors;
}

int64_t RotatedDims(const Config& config, const Config& rope) {
  const double share = rope.NumberOr("partial_rotary_factor", 1);
  if (!(share > 0 && share <= 1)) rope.Refuse("partial_rotary_factor", "expected 0 to 1");
  return static_cast<int64_t>(static_cast<double>(config.head_dim()) * share);
}

// The base frequency. "dynamic" changes it beyond the context that the model was made for; with a fixed "alpha" it is stretched once
// and for all (Hunyuan).
double RotaryBase(const Config& rope, int64_t n_rot) {
  const double base = rope.NumberOr("rope_theta", 10000), alpha = rope.NumberOr("alpha", 1);
  if (rope.StringOr("rope_type", "default") != "dynamic" || alpha == 1 || n_rot <= 2) return base;
  if (!(alpha > 0)) rope.Refuse("alpha", "expected more than 0");
  const double dims = static_cast<double>(n_rot);
  return base * std::pow(alpha, dims / (dims - 2));
}

Values ListedFactors(const Config& rope, const char* key, int64_t n_rot) {
  const std::vector<double> listed = rope.Numbers(key);
  if (std::ssize(listed) != n_rot / 2) {
    rope.Refuse(key, fmt::format("expected {} numbers, found {}", n_rot / 2, listed.size()));
  }
  return Values::Of(key, {listed.size()}, {listed.begin(), listed.end()});
}

}  // namespace

std::vector<TensorRule> Join(std::initializer_list<std::vector<TensorRule>> tables) {
  std::vector<TensorRule> all;
  for (const auto& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

std::vector<TensorRule> ModelTensors() {
  return {{"model.embed_tokens.weight", "token_embd.weight"},
          {"model.norm.weight", "output_norm.weight"},
          {"lm_head.*", "output.*", nullptr, SaysUntied},
          {"lm_head.*", "output.*", nullptr, SaysNothing, Stored::kByType, true},
          {"lm_head.*", "", nullptr, SaysTied}};
}

std::vector<TensorRule> AttentionTensors(Values (*queries)(const Values&, const Place&),
                                         Values (*keys)(const Values&, const Place&)) {
  return {{"self_attn.q_proj.*", "attn_q.*", queries},
          {"self_attn.k_proj.*", "attn_k.*", keys},
          {"self_attn.v_proj.*", "attn_v.*"},
          {"self_attn.o_proj.*", "attn_output.*"}};
}

std::vector<TensorRule> GatedTensors() {
  return {{"mlp.gate_proj.*", "ffn_gate.*"},
          {"mlp.up_proj.*", "ffn_up.*"},
          {"mlp.down_proj.*", "ffn_down.*"}};
}

std::vector<TensorRule> PreNormTensors() {
  return {{"input_layernorm.weight", "attn_norm.weight"},
          {"post_attention_layernorm.weight", "ffn_norm.weight"}};
}

std::vector<TensorRule> HeadNormTensors() {
  return {{"self_attn.q_norm.weight", "attn_q_norm.weight"},
          {"self_attn.k_norm.weight", "attn_k_norm.weight"}};
}

Values PairQueries(const Values& values, const Place& place) {
  return PairHalves(values, place.config.Count("num_attention_heads"));
}

Values PairKeys(const Values& values, const Place& place) {
  return PairHalves(values, place.config.CountOr("num_key_value_heads",
                                                 place.config.Count("num_attention_heads")));
}

Values AddOne(const Values& values, const Place&) {
  return Map(values, [](float x) { return x + 1; });
}

void SetDecoderKeys(const Config& config, Keys& keys) {
  keys.Set("block_count", config.layers());
  keys.Set("context_length", config.Count("max_position_embeddings"));
  keys.Set("embedding_length", config.Count("hidden_size"));
  if (const auto width = config.OptionalCount("intermediate_size")) {
    keys.Set("feed_forward_length", *width);
  }
  const int64_t heads = config.Count("num_attention_heads");
  keys.Set("attention.head_count", heads);
  keys.Set("attention.head_count_kv", config.CountOr("num_key_value_heads", heads));
  if (const auto epsilon = config.OptionalNumber({"rms_norm_eps", "norm_eps"})) {
    keys.Set("attention.layer_norm_rms_epsilon", *epsilon);
  }
  if (config.Has("head_dim")) {
    keys.Set("attention.key_length", config.head_dim());
    keys.Set("attention.value_length", config.head_dim());
  }
  // A draft may have that of its model.
  if (const auto vocab = config.OptionalCount("vocab_size")) keys.Set("vocab_size", *vocab);
  SetRopeKeys(config, config.Rope(), keys);
}

void SetUnwindowedKeys(const Config& config, Keys& keys) {
  if (config.BoolOr("use_sliding_window", false)) {
    config.Refuse("use_sliding_window",
                  "expected false, as no file of this architecture has windows");
  }
  SetDecoderKeys(config, keys);
}

void SetRopeKeys(const Config& config, const Config& rope, Keys& keys) {
  const int64_t n_rot = RotatedDims(config, rope);
  keys.Set("rope.dimension_count", n_rot);
  keys.Set("rope.freq_base", RotaryBase(rope, n_rot));
  static constexpr std::pair<std::string_view, void (*)(const Config&, Keys&)> kTypes[] = {
      {"default", [](const Config&, Keys&) {}},
      {"mrope", [](const Config&, Keys&) {}},
      {"llama3", [](const Config&, Keys&) {}},  // a tensor: EmitRopeTensors
      {"proportional", [](const Config&, Keys&) {}},  // a tensor of the architecture
      {"dynamic", [](const Config&, Keys&) {}},  // a base: RotaryBase
      {"linear", SetLinearKeys},
      {"yarn", SetYarnKeys},
      {"longrope", SetLongRopeKeys},
      {"su", SetLongRopeKeys}};
  const std::string type = rope.StringOr("rope_type", "default");
  for (const auto& [name, set] : kTypes) {
    if (name == type) return set(rope, keys);
  }
  rope.Refuse(
      "rope_type",
      fmt::format("expected default, dynamic, llama3, linear, yarn or longrope, found {}", Printable(type)));
}

void SetWindowKeys(const Config& config, int64_t period, Keys& keys) {
  keys.Set("attention.sliding_window", config.Count("sliding_window"));
  if (!config.Has("layer_types")) return;
  const std::vector<bool> windowed = config.WindowedLayers();
  for (size_t i = 0; i < windowed.size(); ++i) {
    const bool usual = period == 0 || (static_cast<int64_t>(i) + 1) % period != 0;
    if (windowed[i] != usual) return keys.Set("attention.sliding_window_pattern", windowed);
  }
}

void SetMistralWindow(const Config& config, Keys& keys) {
  // Null says that there is none.
  const bool silent = config.StringOr("model_type", "") == "mistral" &&
                      !config.members().contains("sliding_window");
  const int64_t window = config.CountOr("sliding_window", silent ? 4096 : 0);
  if (window != 0) keys.Set("attention.sliding_window", window);
}

void EmitRopeTensors(Recipe& recipe) { EmitRopeTensorsOf(recipe, 0); }

void EmitRopeTensorsOf(Recipe& recipe, size_t pairs) {
  const Config rope = recipe.config().Rope();
  const std::string type = rope.StringOr("rope_type", "default");
  const int64_t n_rot = RotatedDims(recipe.config(), rope);
  if (type == "llama3") {
    std::vector<float> factors = Llama3Factors(rope, n_rot);
    factors.resize(std::max(factors.size(), pairs), 1);
    recipe.Emit("rope_freqs.weight", Values::Of("rope_freqs", {factors.size()}, factors));
  } else if (type == "longrope" || type == "su") {
    recipe.Emit("rope_factors_long.weight", ListedFactors(rope, "long_factor", n_rot));
    recipe.Emit("rope_factors_short.weight", ListedFactors(rope, "short_factor", n_rot));
  }
}

}  // namespace lockstep
