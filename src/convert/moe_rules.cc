#include "convert/moe_rules.h"

#include <algorithm>
#include <charconv>

#include "convert/recurrent_rules.h"

namespace lockstep {
namespace {

const KeyNames kExperts = {"num_local_experts", "num_experts", "n_routed_experts",
                           "moe_num_experts"};
const KeyNames kUsed = {"num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k"};
const KeyNames kSharedWidth = {"shared_expert_intermediate_size", "share_expert_dim"};
const KeyNames kSharedCount = {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
                               "num_shared_expert"};
const KeyNames kScale = {"routed_scaling_factor", "moe_routed_scaling_factor",
                         "moe_router_scaling_factor"};
const KeyNames kNextToken = {"num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"};

bool Contains(const std::vector<int64_t>& list, int64_t value) {
  return std::ranges::find(list, value) != list.end();
}

// A count, or a list of one for each layer that are all the same.
std::optional<int64_t> CountOfAll(const Config& config, const KeyNames& names) {
  const auto found = config.Find(names);
  if (!found || !found->value().is_array()) return config.OptionalCount(names);
  const std::vector<int64_t> counts = config.Counts(names);
  if (counts.empty()) return std::nullopt;
  if (std::ranges::count(counts, counts[0]) != std::ssize(counts)) {
    config.Refuse(names.newest(), "expected one number for all layers");
  }
  return counts[0];
}

int64_t NeededCountOfAll(const Config& config, const KeyNames& names) {
  const auto count = CountOfAll(config, names);
  return count ? *count : config.Count(names);
}

// "3,4,5"
std::vector<int64_t> ListedLayers(std::string_view text) {
  std::vector<int64_t> layers;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    int64_t layer = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), layer);
    if (error == std::errc()) layers.push_back(layer);
    at = error == std::errc() ? end : at + 1;
  }
  return layers;
}

}  // namespace

bool IsSparse(const Place& place) {
  const Config& config = place.config;
  if (const auto types = config.Strings("mlp_layer_types"); !types.empty()) {
    const auto i = static_cast<size_t>(place.layer);
    return i < types.size() ? types[i] == "sparse" : IsNextTokenBlock(place);
  }
  if (const auto dense = config.OptionalCount("first_k_dense_replace"))
    return place.layer >= *dense;
  if (config.Has("moe_layers_enum"))
    return Contains(ListedLayers(config.String("moe_layers_enum")), place.layer);
  if (const auto start = config.OptionalCount("moe_layer_start_index")) {
    // Less than 0: the last layer.
    const double listed = config.NumberOr("moe_layer_end_index", -1);
    const int64_t end = listed < 0 ? config.layers() - 1 : static_cast<int64_t>(listed);
    const int64_t step = std::max<int64_t>(config.CountOr("moe_layer_interval", 1), 1);
    return place.layer >= *start && place.layer <= end && (place.layer + 1) % step == 0;
  }
  const int64_t step = std::max<int64_t>(config.CountOr("decoder_sparse_step", 1), 1);
  return !Contains(config.Counts("mlp_only_layers"), place.layer) && (place.layer + 1) % step == 0;
}

bool IsDense(const Place& place) { return !IsSparse(place); }

void SetMoeKeys(const Config& config, Keys& keys) {
  keys.Set("expert_count", NeededCountOfAll(config, kExperts));
  keys.Set("expert_used_count", NeededCountOfAll(config, kUsed));
  if (const auto width = CountOfAll(config, "moe_intermediate_size"))
    keys.Set("expert_feed_forward_length", *width);
  if (const auto width = CountOfAll(config, kSharedWidth)) {
    keys.Set("expert_shared_feed_forward_length", *width);
  } else if (const auto count = CountOfAll(config, kSharedCount); count && *count > 0) {
    keys.Set("expert_shared_count", *count);
  }
  if (const int64_t groups = config.CountOr("n_group", 1); groups > 1) {
    keys.Set("expert_group_count", groups);
    keys.Set("expert_group_used_count", config.Count("topk_group"));
  }
  if (const auto scale = config.OptionalNumber(kScale)) keys.Set("expert_weights_scale", *scale);
  if (config.Has("norm_topk_prob"))
    keys.Set("expert_weights_norm", config.BoolOr("norm_topk_prob", false));
  int64_t dense = 0;
  while (dense < config.layers() && IsDense({config, dense})) ++dense;
  if (dense > 0) keys.Set("leading_dense_block_count", dense);
}

std::vector<TensorRule> ExpertTensors(const ExpertNames& names) {
  std::vector<TensorRule> rules = {{names.gate, "ffn_gate_exps.weight", nullptr, IsSparse},
                                   {names.up, "ffn_up_exps.weight", nullptr, IsSparse},
                                   {names.down, "ffn_down_exps.weight", nullptr, IsSparse}};
  if (names.downs.empty()) return rules;
  for (TensorRule& rule : rules) rule.unless = names.downs;
  const auto stacked = [](std::string_view from, std::string_view to, auto transform) {
    return TensorRule{from, to, transform, IsSparse, Stored::kByType, true};
  };
  Values (*const none)(const Values&, const Place&) = nullptr;
  return Join({rules,
               {stacked(names.gates_and_ups, "ffn_gate_exps.weight", GateHalf),
                stacked(names.gates_and_ups, "ffn_up_exps.weight", UpHalf),
                stacked(names.downs, "ffn_down_exps.weight", none)}});
}

std::vector<TensorRule> RouterTensors(std::string_view router, std::string_view correction) {
  std::vector<TensorRule> rules = {
      {router, "ffn_gate_inp.weight", nullptr, IsSparse, Stored::kF32}};
  if (!correction.empty()) {
    // Some releases keep it as a row of a matrix.
    const auto flat = [](const Values& values, const Place&) {
      return Reshape(values, {values.size()});
    };
    rules.push_back({correction, "exp_probs_b.bias", flat, IsSparse, Stored::kF32});
  }
  return rules;
}

std::vector<TensorRule> SharedExpertTensors(std::string_view gate, std::string_view up,
                                            std::string_view down) {
  return {{gate, "ffn_gate_shexp.weight", nullptr, IsSparse},
          {up, "ffn_up_shexp.weight", nullptr, IsSparse},
          {down, "ffn_down_shexp.weight", nullptr, IsSparse}};
}

std::vector<TensorRule> DenseLayerTensors() {
  return {{"mlp.gate_proj.*", "ffn_gate.*", nullptr, IsDense},
          {"mlp.up_proj.*", "ffn_up.*", nullptr, IsDense},
          {"mlp.down_proj.*", "ffn_down.*", nullptr, IsDense}};
}

int64_t BlocksWithNextToken(const Config& config) {
  return config.layers() + config.CountOr(kNextToken, 0);
}

bool IsNextTokenBlock(const Place& place) { return place.layer >= place.config.layers(); }

void SetNextTokenKeys(const Config& config, Keys& keys) {
  const int64_t blocks = config.CountOr(kNextToken, 0);
  if (blocks == 0) return;
  keys.Set("block_count", BlocksWithNextToken(config));
  keys.Set("nextn_predict_layers", blocks);
}

std::vector<TensorRule> NextTokenTensors(Values (*norms)(const Values&, const Place&)) {
  const auto rule = [](std::string_view from, std::string_view to, auto transform, bool optional) {
    return TensorRule{from, to, transform, IsNextTokenBlock, Stored::kByType, optional};
  };
  Values (*const none)(const Values&, const Place&) = nullptr;
  return {rule("eh_proj.weight", "nextn.eh_proj.weight", none, false),
          rule("enorm.weight", "nextn.enorm.weight", norms, false),
          rule("hnorm.weight", "nextn.hnorm.weight", norms, false),
          rule("shared_head.norm.weight", "nextn.shared_head_norm.weight", norms, true),
          rule("shared_head.head.weight", "nextn.shared_head_head.weight", none, true),
          rule("embed_tokens.weight", "nextn.embed_tokens.weight", none, true)};
}

void SetWindowKeysOfBlocks(const Config& config, NextToken next_token, Keys& keys) {
  const auto kinds = config.Strings("layer_types");
  std::vector<bool> windowed(static_cast<size_t>(BlocksWithNextToken(config)),
                             next_token == NextToken::kWindowed);
  const std::vector<bool> layers = config.WindowedLayers();
  std::copy(layers.begin(), layers.end(), windowed.begin());
  for (size_t i = layers.size(); i < std::min(windowed.size(), kinds.size()); ++i)
    windowed[i] = kinds[i] == "sliding_attention";
  keys.Set("attention.sliding_window", config.Count("sliding_window"));
  keys.Set("attention.sliding_window_pattern", windowed);
}

std::string MtpLayerName(const Config& config, int64_t layer) {
  const bool next_token = layer >= config.layers();
  return fmt::format("{}.layers.{}.", next_token ? "mtp" : "model",
                     next_token ? layer - config.layers() : layer);
}

void EmitMtpTensors(Recipe& recipe, Values (*norm)(const Values& values, const Place& place)) {
  const Config& config = recipe.config();
  if (BlocksWithNextToken(config) == config.layers()) return;
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"fc", "eh_proj"},
      {"pre_fc_norm_embedding", "enorm"},
      {"pre_fc_norm_hidden", "hnorm"},
      {"norm", "shared_head_norm"}};
  for (const auto& [from, to] : kNames) {
    Values values = recipe.Take(fmt::format("mtp.{}.weight", from));
    if (norm != nullptr && to.ends_with("norm")) values = norm(values, {config, config.layers()});
    recipe.Emit(fmt::format("blk.{}.nextn.{}.weight", config.layers(), to), values);
  }
}

}  // namespace lockstep
