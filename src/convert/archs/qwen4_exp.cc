// Qwen4: Qwen3.5 with experts between gated residual streams, over selected pools of positions, with embeddings of n-grams.
#include <algorithm>

#include "base/error.h"
#include "base/split_mix.h"
#include "convert/archs/qwen_hybrid.h"
#include "convert/moe_rules.h"
#include "convert/recurrent_rules.h"

namespace lockstep {
namespace {

uint64_t Number(const Config& config, const char* key, int64_t most) {
  const int64_t count = config.Count(key);
  if (count < 1 || count > most)
    config.Refuse(key, fmt::format("expected 1 to {}, found {}", most, count));
  return static_cast<uint64_t>(count);
}

// Layers with n-gram embeddings, counted from 0, ascending; checkpoints count from 1.
std::vector<int64_t> NgramLayers(const Config& config) {
  std::vector<int64_t> layers = config.Counts("ple_layer_ids");
  std::ranges::sort(layers);
  for (int64_t& layer : layers) {
    if (layer < 1 || layer > config.layers()) {
      config.Refuse("ple_layer_ids",
                    fmt::format("expected 1 to {}, found {}", config.layers(), layer));
    }
    --layer;
  }
  return layers;
}

bool IsPrime(uint64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0) return false;
  for (uint64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

// How n-grams are hashed, as the architecture derives it from its hyper-parameters.
struct NgramHashes {
  std::vector<uint64_t> multipliers, sizes, offsets;
  std::vector<uint64_t> rows;  // of each layer's table

  explicit NgramHashes(const Config& config) {
    const uint64_t size = Number(config, "ngram_size", 16),
                   per_order = Number(config, "heads_per_ngram", 1024);
    const uint64_t unit = Number(config, "make_ngram_vocab_size_divisible_by", 1 << 20);
    const uint64_t vocab = Number(config, "vocab_size", INT32_MAX);
    const auto seed = static_cast<uint64_t>(config.CountOr("seed", 1234));
    const uint64_t half = std::max<uint64_t>(static_cast<uint64_t>(INT64_MAX) / vocab / 2, 1);
    uint64_t prime = Number(config, "ngram_vocab_size_base", INT32_MAX) - 1, begin = 0;
    for (size_t layer = 0; layer < NgramLayers(config).size(); ++layer) {
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t at = seed + 10007 * layer + 0x9E3779B97F4A7C15 * (i + 1);
        multipliers.push_back(2 * (SplitMix(kSplitMixStep + at) % half) + 1);
      }
      uint64_t end = begin;
      for (uint64_t head = 0; head < (size - 1) * per_order; ++head) {
        do ++prime;
        while (!IsPrime(prime));
        sizes.push_back(prime);
        offsets.push_back(end);
        end += prime;
      }
      rows.push_back((end - begin + unit - 1) / unit * unit);
      begin += rows.back();
    }
  }
};

void SetNgramKeys(const Config& config, Keys& keys) {
  const std::vector<int64_t> layers = NgramLayers(config);
  if (layers.empty()) return;
  keys.Set("ple.layers", layers);
  keys.Set("ple.ngram_size", config.Count("ngram_size"));
  keys.Set("ple.heads_per_ngram", config.Count("heads_per_ngram"));
  keys.Set("ple.conv_kernel", config.Count("ple_conv_kernel_size"));
  const NgramHashes hashes(config);
  // Of one head, as the table has it.
  const auto heads = static_cast<int64_t>(hashes.sizes.size() / layers.size());
  const int64_t width = config.CountOr("ple_embed_dim", config.Count("hidden_size"));
  if (heads == 0 || width % heads != 0) {
    config.Refuse("ple_embed_dim", fmt::format("expected a multiple of {} heads, found {}", heads, width));
  }
  keys.Set("embedding_length_per_layer_input", width / heads);
  // N-grams start anew behind it: of a list, the first.
  const bool listed = config.At("eos_token_id").value().is_array();
  const std::vector<int64_t> ends =
      listed ? config.Counts("eos_token_id") : std::vector{config.Count("eos_token_id")};
  if (ends.empty()) config.Refuse("eos_token_id", "expected a token, found none");
  keys.Set("ple.eos_token_id", ends[0]);
  auto set = [&](const char* key, const std::vector<uint64_t>& numbers) {
    keys.SetFull(fmt::format("qwen4exp.ple.{}", key), GgufArrayData::Of<uint64_t>(numbers));
  };
  set("layer_multipliers", hashes.multipliers);
  set("head_vocab_sizes", hashes.sizes);
  set("head_offsets", hashes.offsets);
}

void SetKeys(const Config& config, Keys& keys) {
  SetHybridKeys(config, keys);
  SetMoeKeys(config, keys);
  keys.Set("hyper_connection.count", config.Count("hc_count"));
  keys.Set("hyper_connection.low_rank", config.Count("hc_lowrank"));
  keys.Set("attention.indexer.head_count", config.Count("indexer_n_heads"));
  keys.Set("attention.indexer.key_length", config.Count("indexer_head_dim"));
  keys.Set("attention.indexer.top_k", config.Count("indexer_budget"));
  std::vector<int64_t> pools;
  for (int64_t i = 0; i < BlocksWithNextToken(config); ++i)
    pools.push_back(IsDeltaNet({config, i}) ? 0 : config.Count("indexer_compress_ratio"));
  keys.Set("attention.compress_ratios", pools);
  if (config.StringOr("output_gate_type", "sigmoid") != "sigmoid") {
    config.Refuse("output_gate_type", "expected sigmoid");
  }
  SetNgramKeys(config, keys);
}

bool HasNgrams(const Place& place) {
  const std::vector<int64_t> layers = NgramLayers(place.config);
  return std::ranges::find(layers, place.layer) != layers.end();
}

Values IndexQueries(const Values& values, const Place& place) {
  return Slice(values, 0, 0,
               Number(place.config, "indexer_n_heads", 65536) *
                   Number(place.config, "indexer_head_dim", 65536));
}
Values IndexKeys(const Values& values, const Place& place) {
  const uint64_t d = Number(place.config, "indexer_head_dim", 65536);
  return Slice(values, 0, Number(place.config, "indexer_n_heads", 65536) * d, d);
}

// Tensors of the layers' n-gram tables, one after the other; what is known of the hashes is in the keys.
void EmitTables(Recipe& recipe) {
  const Config& config = recipe.config();
  const std::vector<int64_t> layers = NgramLayers(config);
  if (layers.empty()) return;
  const NgramHashes hashes(config);
  std::vector<Values> parts;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string stem = fmt::format("model.layers.{}.ple.ple_embedding.", layers[i]);
    uint64_t rows = 0;
    auto take = [&](const std::string& name) {
      parts.push_back(recipe.Take(stem + name));
      rows += parts.back().dims()[0];
    };
    if (recipe.Has(stem + "ngram_embedding.weight")) take("ngram_embedding.weight");
    for (int64_t j = 0; recipe.Has(fmt::format("{}ngram_embedding.shard_{}.weight", stem, j)); ++j)
      take(fmt::format("ngram_embedding.shard_{}.weight", j));
    if (rows != hashes.rows[i]) {
      throw Refused("{}ngram_embedding: expected {} rows, found {}", stem, hashes.rows[i], rows);
    }
    for (const char* known :
         {"layer_multipliers", "ngram_heads_offsets", "ngram_heads_vocab_sizes"})
      recipe.Ignore(stem + known);
  }
  recipe.Emit("per_layer_token_embd.weight", Concat(parts));
}

std::vector<TensorRule> StreamTensors() {
  return {{"attn_hyper_connection.hc_norm.weight", "hc_attn_norm.weight", AddOne},
          {"attn_hyper_connection.input_mix_weight_down.weight", "hc_attn_down.weight"},
          {"attn_hyper_connection.input_mix_weight_up.weight", "hc_attn_up.weight"},
          {"attn_hyper_connection.block_inject_weight.weight", "hc_attn_inject.weight", nullptr,
           nullptr, Stored::kF32},
          {"mlp_hyper_connection.hc_norm.weight", "hc_ffn_norm.weight", AddOne},
          {"mlp_hyper_connection.input_mix_weight_down.weight", "hc_ffn_down.weight"},
          {"mlp_hyper_connection.input_mix_weight_up.weight", "hc_ffn_up.weight"},
          {"mlp_hyper_connection.block_inject_weight.weight", "hc_ffn_inject.weight", nullptr,
           nullptr, Stored::kF32}};
}

std::vector<TensorRule> IndexTensors() {
  return {
      {"self_attn.indexer.index_qk_proj.weight", "indexer.q_proj.weight", IndexQueries,
       IsGatedAttention},
      {"self_attn.indexer.index_qk_proj.weight", "indexer.k_proj.weight", IndexKeys,
       IsGatedAttention},
      {"self_attn.indexer.q_layernorm.weight", "indexer.q_norm.weight", AddOne, IsGatedAttention},
      {"self_attn.indexer.k_layernorm.weight", "indexer.k_norm.weight", AddOne, IsGatedAttention}};
}

std::vector<TensorRule> NgramTensors() {
  return {{"ple.key_proj.weight", "ple_key.weight", nullptr, HasNgrams},
          {"ple.value_proj.weight", "ple_value.weight", nullptr, HasNgrams},
          {"ple.norm_key.weight", "ple_norm_key.weight", AddOne, HasNgrams},
          {"ple.norm_query.weight", "ple_norm_query.weight", AddOne, HasNgrams},
          {"ple.norm_conv.weight", "ple_norm_conv.weight", AddOne, HasNgrams},
          {"ple.conv1d.weight", "ple_conv1d.weight", Filters, HasNgrams, Stored::kF32}};
}

}  // namespace

Converter ConvertQwen4Exp() {
  return {
      .architecture = "qwen4exp",
      .classes = {"Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"},
      .model_types = {"qwen4_exp_text", "qwen4_exp"},
      .defaults =
          R"({"norm_topk_prob": true, "hc_count": 4, "hc_lowrank": 320, "ngram_size": 3, "heads_per_ngram": 8,
                          "ngram_vocab_size_base": 20000000, "make_ngram_vocab_size_divisible_by": 128,
                          "ple_conv_kernel_size": 4, "num_experts_per_tok": 10, "num_experts": 512})",
      .keys = SetKeys,
      .model_tensors =
          {{"model.embed_tokens.weight", "token_embd.weight"},
           {"lm_head.*", "output.*"},
           {"model.hyper_connection_mixer.hc_norm.weight", "output_hc_norm.weight", AddOne},
           {"model.hyper_connection_mixer.input_mix_weight_down.weight", "output_hc_down.weight"},
           {"model.hyper_connection_mixer.input_mix_weight_up.weight", "output_hc_up.weight"}},
      .layer_tensors = Join({StreamTensors(), GatedAttentionTensors(), IndexTensors(),
                             TiledDeltaNetTensors(), NgramTensors(), HybridExpertTensors()}),
      .more = EmitTables};
}

}  // namespace lockstep
