// DeepSeek-V4, as released and as transformers saves it.
#include <algorithm>

#include "base/error.h"
#include "convert/latent_rules.h"
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

constexpr std::string_view kSparse = "compressed_sparse_attention",
                           kHeavy = "heavily_compressed_attention";

// Positions of a compressed key in each layer, 0: none. Older releases list them.
std::vector<int64_t> Pools(const Config& config) {
  if (config.Has("compress_ratios")) return config.Counts("compress_ratios");
  std::vector<int64_t> pools;
  for (const std::string& type : config.Strings("layer_types")) {
    const bool compressed = type == kSparse || type == kHeavy;
    if (!compressed && type != "sliding_attention") {
      config.Refuse("layer_types", fmt::format("expected sliding_attention, {} or {}, found {}",
                                               kSparse, kHeavy, Printable(type)));
    }
    pools.push_back(compressed ? config.At("compress_rates").At(type).Count(65536) : 0);
  }
  return pools;
}

// Layers whose experts are chosen by token: the first ones.
int64_t HashedLayers(const Config& config) {
  if (const auto count = config.OptionalCount("num_hash_layers")) return *count;
  const std::vector<std::string> types = config.Strings("mlp_layer_types");
  return types.empty() ? 3 : std::ranges::count(types, "hash_moe");
}

bool IsHashed(const Place& place) { return place.layer < HashedLayers(place.config); }
bool IsRouted(const Place& place) { return !IsHashed(place); }
bool IsCompressed(const Place& place) {
  const std::vector<int64_t> pools = Pools(place.config);
  const auto i = static_cast<size_t>(place.layer);
  return i < pools.size() && pools[i] != 0;
}

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetRopeKeys(config, config.Rope("main"), keys);
  keys.Set("rope.dimension_count", config.Count("qk_rope_head_dim"));
  keys.Set("attention.head_count_kv", 1);
  keys.Set("attention.q_lora_rank", config.Count("q_lora_rank"));
  keys.Set("attention.output_lora_rank", config.Count("o_lora_rank"));
  keys.Set("attention.output_group_count", config.Count("o_groups"));
  keys.Set("attention.sliding_window", config.Count("sliding_window"));
  keys.Set("attention.compress_ratios", Pools(config));
  keys.Set("attention.compress_rope_freq_base", config.NumberOr("compress_rope_theta", 160000));
  SetIndexerKeys(config, keys);
  keys.Set("hyper_connection.count", config.Count("hc_mult"));
  keys.Set("hyper_connection.sinkhorn_iterations", config.Count("hc_sinkhorn_iters"));
  keys.Set("hyper_connection.epsilon", config.Number("hc_eps"));
  SetMoeKeys(config, keys);
  keys.Remove("leading_dense_block_count");
  keys.Set("expert_weights_norm", true);
  keys.Set("expert_gating_func", 4);
  keys.Set("hash_layer_count", HashedLayers(config));
  if (const auto limit = config.OptionalNumber("swiglu_limit")) {
    keys.Set("swiglu_clamp_exp", std::vector<double>(static_cast<size_t>(config.layers()), *limit));
  }
}

// NAME of a branch's hyper-connections.
TensorRule Mixing(std::string_view from, std::string_view to) {
  return {from, to, nullptr, nullptr, Stored::kF32};
}

// A tensor whose name is `released`, or else `saved`.
std::vector<TensorRule> EitherName(std::string_view released, std::string_view saved,
                                   std::string_view to, Stored stored = Stored::kByType) {
  return {{released, to, nullptr, nullptr, stored, true},
          {saved, to, nullptr, nullptr, stored, false, released}};
}

std::vector<TensorRule> Compressor(bool indexer) {
  const auto optional = [](std::string_view from, std::string_view to,
                           Stored stored = Stored::kByType) {
    return TensorRule{from, to, nullptr, IsCompressed, stored, true};
  };
  if (indexer) {
    return {optional("attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"),
            optional("attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"),
            optional("attn.indexer.compressor.ape", "indexer_compressor_ape.weight", Stored::kF32),
            optional("attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"),
            optional("attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"),
            optional("attn.indexer.weights_proj.weight", "indexer.proj.weight", Stored::kF32)};
  }
  return {
      {"attn.compressor.wkv.weight", "attn_compressor_kv.weight", nullptr, IsCompressed},
      {"attn.compressor.wgate.weight", "attn_compressor_gate.weight", nullptr, IsCompressed},
      {"attn.compressor.ape", "attn_compressor_ape.weight", nullptr, IsCompressed, Stored::kF32},
      {"attn.compressor.norm.weight", "attn_compressor_norm.weight", nullptr, IsCompressed}};
}

std::vector<TensorRule> Attention() {
  return Join({EitherName("attn.kv_norm.weight", "attn.norm.weight", "attn_kv_a_norm.weight"), {
      {"attn_norm.weight", "attn_norm.weight"},      {"ffn_norm.weight", "ffn_norm.weight"},
      {"attn.wq_a.weight", "attn_q_a.weight"},       {"attn.q_norm.weight", "attn_q_a_norm.weight"},
      {"attn.wq_b.weight", "attn_q_b.weight"},       {"attn.wkv.weight", "attn_kv.weight"},
      {"attn.attn_sink", "attn_sinks.weight"},
      {"attn.wo_a.weight", "attn_output_a.weight"},  {"attn.wo_b.weight", "attn_output_b.weight"}}});
}

std::vector<TensorRule> Experts() {
  return {{"ffn.gate.weight", "ffn_gate_inp.weight", nullptr, nullptr, Stored::kF32},
          {"ffn.gate.bias", "exp_probs_b.bias", nullptr, IsRouted, Stored::kF32},
          {"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight", nullptr, IsHashed, Stored::kI32},
          {"ffn.experts.{e}.w1.weight", "ffn_gate_exps.weight"},
          {"ffn.experts.{e}.w3.weight", "ffn_up_exps.weight"},
          {"ffn.experts.{e}.w2.weight", "ffn_down_exps.weight"},
          {"ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight"},
          {"ffn.shared_experts.w3.weight", "ffn_up_shexp.weight"},
          {"ffn.shared_experts.w2.weight", "ffn_down_shexp.weight"}};
}

}  // namespace

Converter ConvertDeepseek4() {
  return {
      .architecture = "deepseek4",
      .classes = {"DeepseekV4ForCausalLM"},
      .model_types = {"deepseek_v4"},
      .defaults =
          R"({"num_key_value_heads": 1, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "sliding_window": 128,
                          "routed_scaling_factor": 1.5, "n_shared_experts": 1, "first_k_dense_replace": 0, "rms_norm_eps": 1e-6,
                          "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512,
                          "qk_rope_head_dim": 64})",
      .keys = SetKeys,
      .model_tensors = Join(
          {EitherName("embed.weight", "model.embed_tokens.weight", "token_embd.weight"),
           EitherName("norm.weight", "model.norm.weight", "output_norm.weight"),
           {{"head.weight", "output.weight"}},
           EitherName("hc_head_fn", "model.hc_head.hc_fn", "output_hc_fn.weight", Stored::kF32),
           EitherName("hc_head_base", "model.hc_head.hc_base", "output_hc_base.weight", Stored::kF32),
           EitherName("hc_head_scale", "model.hc_head.hc_scale", "output_hc_scale.weight",
                      Stored::kF32)}),
      .layer_tensors = Join(
          {Attention(),
           Compressor(false),
           Compressor(true),
           {Mixing("hc_attn_fn", "hc_attn_fn.weight"),
            Mixing("hc_attn_base", "hc_attn_base.weight"),
            Mixing("hc_attn_scale", "hc_attn_scale.weight"),
            Mixing("hc_ffn_fn", "hc_ffn_fn.weight"), Mixing("hc_ffn_base", "hc_ffn_base.weight"),
            Mixing("hc_ffn_scale", "hc_ffn_scale.weight")},
           Experts()}),
      .layer_stems = {"model.layers.", "layers."}};
}

}  // namespace lockstep
