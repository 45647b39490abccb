// GLM-5 Next: Kimi's delta attention, latent attention over selected pools, hyper-connected streams.
#include "base/error.h"
#include "convert/latent_rules.h"
#include "convert/moe_rules.h"
#include "convert/recurrent_rules.h"

namespace lockstep {
namespace {

bool IsDelta(const Place& place) {
  const std::vector<std::string> types = place.config.Strings("layer_types");
  const auto layer = static_cast<size_t>(place.layer);
  return layer < types.size() && types[layer] == "linear_attention";
}
bool IsLatent(const Place& place) { return !IsDelta(place); }

void SetKeys(const Config& config, Keys& keys) {
  SetLatentKeys(config, keys);
  keys.Set("rope.dimension_count", 0);
  keys.Remove("rope.freq_base");
  SetIndexerKeys(config, keys);
  keys.Set("attention.indexer.kpool", config.Count("index_kpool"));
  if (!config.BoolOr("index_kpool_always_select_tail", true)) {
    config.Refuse("index_kpool_always_select_tail", "expected true, found false");
  }
  std::vector<int64_t> kv_heads;
  for (int64_t i = 0; i < BlocksWithNextToken(config); ++i)
    kv_heads.push_back(IsDelta({config, i}) ? 0 : 1);
  keys.Set("attention.head_count_kv", kv_heads);
  // Of the indexer's keys.
  keys.Set("attention.layer_norm_epsilon", 1e-6);
  for (const std::string& type : config.Strings("indexer_types")) {
    if (type != "full")
      config.Refuse("indexer_types", fmt::format("expected full, found {}", Printable(type)));
  }
  if (config.Count("linear_num_heads") != config.Count("num_attention_heads"))
    keys.Set("kda.head_count", config.Count("linear_num_heads"));
  keys.Set("kda.head_dim", config.Count("linear_head_dim"));
  keys.Set("ssm.conv_kernel", config.Count("linear_conv_kernel_dim"));
  if (const auto bound = config.OptionalNumber("linear_lower_bound"))
    keys.Set("kda.gate_lower_bound", *bound);
  keys.Set("hyper_connection.count", config.Count("hc_mult"));
  keys.Set("hyper_connection.sinkhorn_iterations", config.Count("hc_sinkhorn_iters"));
  keys.Set("hyper_connection.epsilon", config.Number("hc_eps"));
  SetMoeKeys(config, keys);
  keys.Set("expert_gating_func", 2);
  if (const auto limit = config.OptionalNumber("swiglu_limit"))
    keys.Set("swiglu_clamp_exp", *limit);
}

// Latent attention's tables are those of layers that have it: here some have none of it.
std::vector<TensorRule> SomeLayers(std::vector<TensorRule> rules) {
  for (TensorRule& rule : rules) {
    if (rule.where == nullptr) {
      rule.where = IsLatent;
    } else {
      rule.optional = true;
    }
  }
  return rules;
}

std::vector<TensorRule> PoolTensors() {
  return {{"self_attn.indexer.index_kpool_compress_gate", "indexer_compressor_gate.weight", nullptr,
           IsLatent},
          {"self_attn.indexer.index_kpool_compress_ape", "indexer_compressor_ape.weight", nullptr,
           IsLatent, Stored::kF32}};
}

std::vector<TensorRule> DeltaTensors() {
  return {{"self_attn.q_proj.weight", "attn_q.weight", nullptr, IsDelta},
          {"self_attn.k_proj.weight", "attn_k.weight", nullptr, IsDelta},
          {"self_attn.v_proj.weight", "attn_v.weight", nullptr, IsDelta},
          {"self_attn.o_proj.weight", "attn_output.weight", nullptr, IsDelta},
          {"self_attn.q_conv1d.weight", "ssm_conv1d_q.weight", nullptr, IsDelta, Stored::kF32},
          {"self_attn.k_conv1d.weight", "ssm_conv1d_k.weight", nullptr, IsDelta, Stored::kF32},
          {"self_attn.v_conv1d.weight", "ssm_conv1d_v.weight", nullptr, IsDelta, Stored::kF32},
          {"self_attn.f_a_proj.weight", "ssm_f_a.weight", nullptr, IsDelta},
          {"self_attn.f_b_proj.weight", "ssm_f_b.weight", nullptr, IsDelta},
          {"self_attn.g_a_proj.weight", "ssm_g_a.weight", nullptr, IsDelta},
          {"self_attn.g_b_proj.weight", "ssm_g_b.weight", nullptr, IsDelta},
          {"self_attn.b_proj.weight", "ssm_beta.weight", nullptr, IsDelta},
          {"self_attn.dt_bias", "ssm_dt.bias", nullptr, IsDelta},
          {"self_attn.A_log", "ssm_a", NegativeExp, IsDelta},
          {"self_attn.o_norm.weight", "ssm_norm.weight", nullptr, IsDelta}};
}

std::vector<TensorRule> StreamTensors() {
  std::vector<TensorRule> rules = {
      {"hc_attn_fn", "hc_attn_fn.weight"},       {"hc_attn_base", "hc_attn_base.weight"},
      {"hc_attn_scale", "hc_attn_scale.weight"}, {"hc_ffn_fn", "hc_ffn_fn.weight"},
      {"hc_ffn_base", "hc_ffn_base.weight"},     {"hc_ffn_scale", "hc_ffn_scale.weight"}};
  for (TensorRule& rule : rules) rule.stored = Stored::kF32;
  return rules;
}

}  // namespace

Converter ConvertGlm5Next() {
  return {
      .architecture = "glm5-next",
      .classes = {"Glm5NextForConditionalGeneration", "Glm5NextForCausalLM"},
      .model_types = {"glm5_next_text", "glm5_next"},
      .defaults =
          R"({"first_k_dense_replace": 3, "norm_topk_prob": true, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
                          "index_kpool": 1, "linear_conv_kernel_dim": 4})",
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors = Join({SomeLayers(LatentTensors()), SomeLayers(IndexerTensors()),
                             PoolTensors(), DeltaTensors(), StreamTensors(), LatentMoeTensors()}),
      .layers = BlocksWithNextToken};
}

}  // namespace lockstep
