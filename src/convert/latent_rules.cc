#include "convert/latent_rules.h"

#include "convert/moe_rules.h"

namespace lockstep {
namespace {

uint64_t Size(const Place& place, const KeyNames& names) {
  return static_cast<uint64_t>(place.config.Count(names));
}

// [heads, nope + v, rank] of kv_b_proj.
Values ByHead(const Values& values, const Place& place) {
  const uint64_t heads = Size(place, "num_attention_heads"), rank = Size(place, "kv_lora_rank");
  return Reshape(values,
                 {heads, Size(place, "qk_nope_head_dim") + Size(place, "v_head_dim"), rank});
}

// [heads, rank, nope]: queries are multiplied into the latent space.
Values KeyPart(const Values& values, const Place& place) {
  return Transpose(Slice(ByHead(values, place), 1, 0, Size(place, "qk_nope_head_dim")));
}

Values ValuePart(const Values& values, const Place& place) {
  return Slice(ByHead(values, place), 1, Size(place, "qk_nope_head_dim"),
               Size(place, "v_head_dim"));
}

bool HasQueryRank(const Place& place) { return place.config.Has("q_lora_rank"); }
bool LacksQueryRank(const Place& place) { return !HasQueryRank(place); }

}  // namespace

void SetLatentKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  const int64_t rank = config.Count("kv_lora_rank"), nope = config.Count("qk_nope_head_dim"),
                rope = config.Count("qk_rope_head_dim");
  if (!config.BoolOr("rope_interleave", true)) {
    config.Refuse("rope_interleave", "expected true, as files rotate neighbouring pairs");
  }
  keys.Set("attention.head_count_kv", 1);
  // llama.cpp wants the key where queries have no latent too.
  keys.Set("attention.q_lora_rank", config.CountOr("q_lora_rank", 0));
  keys.Set("attention.kv_lora_rank", rank);
  keys.Set("attention.key_length", rank + rope);
  keys.Set("attention.value_length", rank);
  keys.Set("attention.key_length_mla", nope + rope);
  keys.Set("attention.value_length_mla", config.Count("v_head_dim"));
  keys.Set("rope.dimension_count", rope);
  // llama.cpp's spelling of this architecture family.
  if (const auto mscale = config.Rope().OptionalNumber("mscale_all_dim"))
    keys.Set("rope.scaling.yarn_log_multiplier", 0.1 * *mscale);
  SetNextTokenKeys(config, keys);
}

void SetIndexerKeys(const Config& config, Keys& keys) {
  keys.Set("attention.indexer.head_count", config.Count("index_n_heads"));
  keys.Set("attention.indexer.key_length", config.Count("index_head_dim"));
  keys.Set("attention.indexer.top_k", config.Count("index_topk"));
}

void SetIndexedLatentKeys(const Config& config, Keys& keys) {
  SetLatentKeys(config, keys);
  SetIndexerKeys(config, keys);
  SetMoeKeys(config, keys);
  keys.Set("expert_gating_func", 2);
}

std::vector<TensorRule> LatentTensors() {
  return {{"self_attn.q_proj.*", "attn_q.*", nullptr, LacksQueryRank},
          {"self_attn.q_a_proj.*", "attn_q_a.*", nullptr, HasQueryRank},
          {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", nullptr, HasQueryRank},
          {"self_attn.q_b_proj.weight", "attn_q_b.weight", nullptr, HasQueryRank},
          {"self_attn.kv_a_proj_with_mqa.*", "attn_kv_a_mqa.*"},
          {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
          {"self_attn.kv_b_proj.weight", "attn_k_b.weight", KeyPart},
          {"self_attn.kv_b_proj.weight", "attn_v_b.weight", ValuePart},
          {"self_attn.o_proj.*", "attn_output.*"}};
}

std::vector<TensorRule> IndexerTensors() {
  const auto optional = [](std::string_view from, std::string_view to,
                           Stored stored = Stored::kByType) {
    return TensorRule{from, to, nullptr, nullptr, stored, true};
  };
  return {optional("self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"),
          optional("self_attn.indexer.wk.weight", "indexer.attn_k.weight"),
          optional("self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"),
          optional("self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"),
          optional("self_attn.indexer.weights_proj.weight", "indexer.proj.weight", Stored::kF32)};
}

std::vector<TensorRule> LatentMoeTensors(const std::vector<TensorRule>& experts) {
  std::vector<TensorRule> router =
      RouterTensors("mlp.gate.weight", "mlp.gate.e_score_correction_bias");
  // DeepSeek-V2 corrects nothing.
  router.back().optional = true;
  return Join({PreNormTensors(), DenseLayerTensors(), router,
               experts.empty() ? ExpertTensors(kMlpExperts) : experts,
               SharedExpertTensors("mlp.shared_experts.gate_proj.weight",
                                   "mlp.shared_experts.up_proj.weight",
                                   "mlp.shared_experts.down_proj.weight"),
               NextTokenTensors()});
}

}  // namespace lockstep
