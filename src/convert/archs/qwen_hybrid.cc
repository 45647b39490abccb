// Qwen3-Next and Qwen3.5: gated delta networks, every fourth layer attention with an output gate, dense or with experts.
#include "convert/archs/qwen_hybrid.h"

#include "base/error.h"
#include "convert/moe_rules.h"
#include "convert/recurrent_rules.h"

namespace lockstep {
namespace {

// Key heads, value heads for each, and the widths of a head.
struct Heads {
  explicit Heads(const Config& config)
      : keys(Positive(config, "linear_num_key_heads")),
        per_key(Positive(config, "linear_num_value_heads") / keys),
        dk(Positive(config, "linear_key_head_dim")),
        dv(Positive(config, "linear_value_head_dim")) {
    if (keys * per_key != static_cast<uint64_t>(config.Count("linear_num_value_heads"))) {
      config.Refuse("linear_num_value_heads",
                    fmt::format("expected a multiple of the {} key heads", keys));
    }
  }

  static uint64_t Positive(const Config& config, const char* key) {
    const int64_t count = config.Count(key);
    if (count < 1) config.Refuse(key, fmt::format("expected at least 1, found {}", count));
    return static_cast<uint64_t>(count);
  }
  uint64_t values() const { return keys * per_key; }

  uint64_t keys, per_key, dk, dv;
};

// Entries of an axis from `first` on are value heads of `width` each, grouped by key head: tiled over the key heads.
Values Tile(const Values& values, size_t axis, const Heads& heads, uint64_t first, uint64_t width) {
  const uint64_t count = first + heads.values() * width;
  if (values.dims().size() <= axis || values.dims()[axis] != count) {
    throw Refused("{}: expected {} on axis {}", Printable(values.name()), count, axis);
  }
  return Pick(values, axis, count, [=](uint64_t i) {
    if (i < first) return i;
    const uint64_t head = (i - first) / width, key = head % heads.keys, part = head / heads.keys;
    return first + (key * heads.per_key + part) * width + (i - first) % width;
  });
}

Values TileQkv(const Values& values, const Place& place) {
  const Heads heads(place.config);
  return Tile(values, 0, heads, 2 * heads.keys * heads.dk, heads.dv);
}
Values TileFilters(const Values& values, const Place& place) {
  return TileQkv(Filters(values, place), place);
}
Values TileValues(const Values& values, const Place& place) {
  const Heads heads(place.config);
  return Tile(values, 0, heads, 0, heads.dv);
}
Values TileColumns(const Values& values, const Place& place) {
  const Heads heads(place.config);
  return Tile(values, 1, heads, 0, heads.dv);
}
Values TileHeads(const Values& values, const Place& place) {
  return Tile(values, 0, Heads(place.config), 0, 1);
}
Values TileDecays(const Values& values, const Place& place) {
  return TileHeads(NegativeExp(values, place), place);
}

// Rows [begin, begin + count) of each key head's q, k, v, z.
Values PickOfEach(const Values& values, const Heads& heads, uint64_t begin, uint64_t count) {
  const uint64_t stride = 2 * heads.dk + 2 * heads.per_key * heads.dv;
  if (values.dims().empty() || values.dims()[0] != heads.keys * stride) {
    throw Refused("{}: expected {} rows", Printable(values.name()), heads.keys * stride);
  }
  return Pick(values, 0, heads.keys * count,
              [=](uint64_t i) { return i / count * stride + begin + i % count; });
}

Values Qkv(const Values& values, const Place& place) {
  const Heads heads(place.config);
  return Concat({PickOfEach(values, heads, 0, heads.dk),
                 PickOfEach(values, heads, heads.dk, heads.dk),
                 PickOfEach(values, heads, 2 * heads.dk, heads.per_key * heads.dv)});
}
Values Z(const Values& values, const Place& place) {
  const Heads heads(place.config);
  return PickOfEach(values, heads, 2 * heads.dk + heads.per_key * heads.dv,
                    heads.per_key * heads.dv);
}

// Projections and filters of Qwen3-Next, whose value heads stay in the checkpoint's order.
std::vector<TensorRule> GroupedDeltaNetTensors() {
  return {{"linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", Qkv, IsDeltaNet},
          {"linear_attn.in_proj_qkvz.weight", "attn_gate.weight", Z, IsDeltaNet},
          {"linear_attn.in_proj_ba.weight", "ssm_ba.weight", nullptr, IsDeltaNet},
          {"linear_attn.conv1d.weight", "ssm_conv1d.weight", Filters, IsDeltaNet, Stored::kF32},
          {"linear_attn.dt_bias", "ssm_dt.bias", nullptr, IsDeltaNet},
          {"linear_attn.A_log", "ssm_a", NegativeExp, IsDeltaNet},
          {"linear_attn.norm.weight", "ssm_norm.weight", nullptr, IsDeltaNet},
          {"linear_attn.out_proj.weight", "ssm_out.weight", nullptr, IsDeltaNet}};
}

void SetExpertHybridKeys(const Config& config, Keys& keys) {
  SetHybridKeys(config, keys);
  SetMoeKeys(config, keys);
}

void EmitNextToken(Recipe& recipe) { EmitMtpTensors(recipe, AddOne); }

}  // namespace

bool IsDeltaNet(const Place& place) {
  const std::vector<std::string> types = place.config.Strings("layer_types");
  const auto layer = static_cast<size_t>(place.layer);
  if (place.layer >= place.config.layers()) return false;
  if (layer < types.size()) return types[layer] == "linear_attention";
  return (place.layer + 1) % place.config.CountOr("full_attention_interval", 4) != 0;
}
bool IsGatedAttention(const Place& place) { return !IsDeltaNet(place); }

void SetHybridKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  const int64_t layers = config.layers(), interval = config.CountOr("full_attention_interval", 4);
  if (interval < 1) config.Refuse("full_attention_interval", "expected at least 1, found 0");
  std::vector<bool> recurrent;
  bool usual = true;
  for (int64_t i = 0; i < BlocksWithNextToken(config); ++i) {
    recurrent.push_back(IsDeltaNet({config, i}));
    if (i < layers) usual &= recurrent.back() == ((i + 1) % interval != 0);
  }
  if (usual) {
    keys.Set("full_attention_interval", interval);
  } else {
    keys.Set("attention.recurrent_layers", recurrent);
  }
  SetNextTokenKeys(config, keys);
  const Heads heads(config);
  keys.Set("ssm.conv_kernel", config.Count("linear_conv_kernel_dim"));
  keys.Set("ssm.state_size", static_cast<int64_t>(heads.dk));
  keys.Set("ssm.group_count", static_cast<int64_t>(heads.keys));
  keys.Set("ssm.time_step_rank", static_cast<int64_t>(heads.values()));
  keys.Set("ssm.inner_size", static_cast<int64_t>(heads.values() * heads.dv));
  // Of positions in images; llama.cpp wants four, whatever the release says.
  std::vector<int64_t> sections = config.Rope().Counts("mrope_section");
  if (sections.empty()) sections = {11, 11, 10};
  sections.resize(4);
  keys.Set("rope.dimension_sections", sections);
}

std::vector<TensorRule> TiledDeltaNetTensors() {
  return {{"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", TileQkv, IsDeltaNet},
          {"linear_attn.in_proj_z.weight", "attn_gate.weight", TileValues, IsDeltaNet},
          {"linear_attn.in_proj_b.weight", "ssm_beta.weight", TileHeads, IsDeltaNet},
          {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", TileHeads, IsDeltaNet},
          {"linear_attn.conv1d.weight", "ssm_conv1d.weight", TileFilters, IsDeltaNet, Stored::kF32},
          {"linear_attn.dt_bias", "ssm_dt.bias", TileHeads, IsDeltaNet},
          {"linear_attn.A_log", "ssm_a", TileDecays, IsDeltaNet},
          {"linear_attn.norm.weight", "ssm_norm.weight", nullptr, IsDeltaNet},
          {"linear_attn.out_proj.weight", "ssm_out.weight", TileColumns, IsDeltaNet}};
}

std::vector<TensorRule> HybridLayerTensors() {
  return Join({{{"input_layernorm.weight", "attn_norm.weight", AddOne},
                {"post_attention_layernorm.weight", "post_attention_norm.weight", AddOne}},
               GatedAttentionTensors()});
}

std::vector<TensorRule> GatedAttentionTensors() {
  return {{"self_attn.q_proj.*", "attn_q.*", nullptr, IsGatedAttention},
          {"self_attn.k_proj.*", "attn_k.*", nullptr, IsGatedAttention},
          {"self_attn.v_proj.*", "attn_v.*", nullptr, IsGatedAttention},
          {"self_attn.o_proj.*", "attn_output.*", nullptr, IsGatedAttention},
          {"self_attn.q_norm.weight", "attn_q_norm.weight", AddOne, IsGatedAttention},
          {"self_attn.k_norm.weight", "attn_k_norm.weight", AddOne, IsGatedAttention}};
}

std::vector<TensorRule> HybridExpertTensors() {
  // The shared expert's gate is a row of a matrix in checkpoints.
  const auto flat = [](const Values& values, const Place&) { return Reshape(values, {values.size()}); };
  return Join(
      {DenseLayerTensors(),
       RouterTensors("mlp.gate.weight"),
       ExpertTensors(kMlpExperts),
       SharedExpertTensors("mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight",
                           "mlp.shared_expert.down_proj.weight"),
       {{"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", flat, IsSparse,
         Stored::kF32}}});
}

std::vector<TensorRule> HybridModelTensors() {
  std::vector<TensorRule> rules = ModelTensors();
  for (TensorRule& rule : rules) {
    if (rule.from == "model.norm.weight") rule.transform = AddOne;
  }
  return rules;
}

Converter ConvertQwen3Next() {
  return {
      .architecture = "qwen3next",
      .classes = {"Qwen3NextForCausalLM"},
      .model_types = {"qwen3_next"},
      .defaults = R"({"norm_topk_prob": true})",
      .keys = SetExpertHybridKeys,
      .model_tensors = HybridModelTensors(),
      .layer_tensors = Join({HybridLayerTensors(), GroupedDeltaNetTensors(), HybridExpertTensors()}),
      .layers = BlocksWithNextToken,
      .layer_name = MtpLayerName,
      .more = EmitNextToken};
}

Converter ConvertQwen35() {
  return {.architecture = "qwen35",
          .classes = {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
          .model_types = {"qwen3_5_text", "qwen3_5"},
          .keys = SetHybridKeys,
          .model_tensors = HybridModelTensors(),
          .layer_tensors = Join({HybridLayerTensors(), TiledDeltaNetTensors(), GatedTensors()}),
          .layers = BlocksWithNextToken,
          .layer_name = MtpLayerName,
          .more = EmitNextToken};
}

Converter ConvertQwen35Moe() {
  return {
      .architecture = "qwen35moe",
      .classes = {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
      .model_types = {"qwen3_5_moe_text", "qwen3_5_moe"},
      .defaults = R"({"norm_topk_prob": true})",
      .keys = SetExpertHybridKeys,
      .model_tensors = HybridModelTensors(),
      .layer_tensors = Join({HybridLayerTensors(), TiledDeltaNetTensors(), HybridExpertTensors()}),
      .layers = BlocksWithNextToken,
      .layer_name = MtpLayerName,
      .more = EmitNextToken};
}

}  // namespace lockstep
