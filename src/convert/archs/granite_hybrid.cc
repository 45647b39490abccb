// Granite 4 hybrids: Mamba-2 in most layers, attention in some, dense or with experts.
#include "convert/archs/granite.h"
#include "convert/moe_rules.h"
#include "convert/recurrent_rules.h"

namespace lockstep {
namespace {

// Releases say "mamba" and "attention", transformers rewrites them.
bool IsMamba(const Place& place) {
  const std::vector<std::string> types = place.config.Strings("layer_types");
  const auto layer = static_cast<size_t>(place.layer);
  if (layer >= types.size()) {
    place.config.Refuse("layer_types", fmt::format("expected {} entries, found {}",
                                                   place.config.layers(), types.size()));
  }
  return types[layer] == "mamba" || types[layer] == "linear_attention";
}
bool IsAttention(const Place& place) { return !IsMamba(place); }
bool HasExperts(const Place& place) { return place.config.CountOr("num_local_experts", 0) > 0; }
bool HasNoExperts(const Place& place) { return !HasExperts(place); }

void SetKeys(const Config& config, Keys& keys) {
  SetGraniteKeys(config, keys);
  std::vector<int64_t> kv_heads;
  for (int64_t i = 0; i < config.layers(); ++i)
    kv_heads.push_back(IsMamba({config, i}) ? 0 : config.Count("num_key_value_heads"));
  keys.Set("attention.head_count_kv", kv_heads);
  keys.Set("rope.scaling.finetuned", config.StringOr("position_embedding_type", "rope") == "rope");
  keys.Set("ssm.conv_kernel", config.Count("mamba_d_conv"));
  keys.Set("ssm.state_size", config.Count("mamba_d_state"));
  keys.Set("ssm.group_count", config.Count("mamba_n_groups"));
  keys.Set("ssm.time_step_rank", config.Count("mamba_n_heads"));
  keys.Set("ssm.inner_size", config.Count("mamba_expand") * config.Count("hidden_size"));
  const int64_t shared = config.Count("shared_intermediate_size");
  if (config.CountOr("num_local_experts", 0) == 0) return keys.Set("feed_forward_length", shared);
  SetMoeKeys(config, keys);
  keys.Set("expert_feed_forward_length", config.Count("intermediate_size"));
  keys.Set("expert_shared_feed_forward_length", shared);
}

Values DecayColumn(const Values& values, const Place& place) {
  return Column(NegativeExp(values, place), place);
}
Values NormGroups(const Values& values, const Place& place) {
  const auto groups = static_cast<uint64_t>(place.config.Count("mamba_n_groups"));
  if (groups == 0 || values.size() % groups != 0) {
    place.config.Refuse("mamba_n_groups",
                        fmt::format("expected a divisor of {}, found {}", values.size(), groups));
  }
  return Reshape(values, {groups, values.size() / groups});
}

std::vector<TensorRule> MambaTensors() {
  return {{"mamba.in_proj.*", "ssm_in.*", nullptr, IsMamba},
          {"mamba.conv1d.weight", "ssm_conv1d.weight", Filters, IsMamba, Stored::kF32},
          {"mamba.conv1d.bias", "ssm_conv1d.bias", nullptr, IsMamba, Stored::kF32, true},
          {"mamba.dt_bias", "ssm_dt.bias", nullptr, IsMamba},
          {"mamba.A_log", "ssm_a", DecayColumn, IsMamba, Stored::kF32},
          {"mamba.D", "ssm_d", Column, IsMamba, Stored::kF32},
          {"mamba.norm.weight", "ssm_norm.weight", NormGroups, IsMamba, Stored::kF32},
          {"mamba.out_proj.*", "ssm_out.*", nullptr, IsMamba}};
}

std::vector<TensorRule> FeedForwardTensors() {
  return {{"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", nullptr, HasExperts,
           Stored::kF32},
          {"block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", GateHalf, HasExperts},
          {"block_sparse_moe.input_linear.weight", "ffn_up_exps.weight", UpHalf, HasExperts},
          {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", nullptr, HasExperts},
          {"shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", GateHalf, HasExperts},
          {"shared_mlp.input_linear.weight", "ffn_up_shexp.weight", UpHalf, HasExperts},
          {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight", nullptr, HasExperts},
          {"shared_mlp.input_linear.weight", "ffn_gate.weight", GateHalf, HasNoExperts},
          {"shared_mlp.input_linear.weight", "ffn_up.weight", UpHalf, HasNoExperts},
          {"shared_mlp.output_linear.weight", "ffn_down.weight", nullptr, HasNoExperts}};
}

}  // namespace

Converter ConvertGraniteHybrid() {
  return {.architecture = "granitehybrid",
          .classes = {"GraniteMoeHybridForCausalLM"},
          .model_types = {"granitemoehybrid"},
          .defaults = kGraniteDefaults,
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(),
                                 MambaTensors(),
                                 FeedForwardTensors(),
                                 {{"self_attn.q_proj.*", "attn_q.*", PairQueries, IsAttention},
                                  {"self_attn.k_proj.*", "attn_k.*", PairKeys, IsAttention},
                                  {"self_attn.v_proj.*", "attn_v.*", nullptr, IsAttention},
                                  {"self_attn.o_proj.*", "attn_output.*", nullptr, IsAttention}}})};
}

}  // namespace lockstep
