// Step 3.5. Norms are stored less 1; experts come stacked.
#include <algorithm>

#include "convert/moe_rules.h"

namespace lockstep {
namespace {

// Bounds of all blocks, 0 where one has none.
std::vector<double> Limits(const Config& config, const char* key) {
  std::vector<double> limits(static_cast<size_t>(BlocksWithNextToken(config)));
  const auto listed = config.Find(key);
  if (!listed) return limits;
  const std::vector<JsonNode> items = listed->Items();
  for (size_t i = 0; i < std::min(items.size(), limits.size()); ++i) {
    if (!items[i].is_null()) limits[i] = items[i].Number();
  }
  return limits;
}

// Windowed layers may have heads of their own, by either of two keys.
int64_t HeadsOfWindowed(const Config& config, int64_t heads) {
  const auto other = config.Find("attention_other_setting");
  const auto listed = other ? other->Find("num_attention_heads") : std::nullopt;
  return config.CountOr("num_sliding_attention_heads", listed ? listed->Count(1 << 20) : heads);
}

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetMoeKeys(config, keys);
  SetNextTokenKeys(config, keys);
  SetWindowKeysOfBlocks(config, NextToken::kSeesAll, keys);
  const auto kinds = config.Strings("layer_types");
  const int64_t heads = config.Count("num_attention_heads");
  std::vector<int64_t> by_layer(static_cast<size_t>(BlocksWithNextToken(config)), heads);
  for (size_t i = 0; i < std::min(kinds.size(), by_layer.size()); ++i) {
    if (kinds[i] == "sliding_attention") by_layer[i] = HeadsOfWindowed(config, heads);
  }
  keys.Set("attention.head_count", by_layer);
  const Config all = config.Rope(), local = config.Rope("sliding_attention");
  if (all.NumberOr("partial_rotary_factor", 0.5) != 0.5 ||
      local.NumberOr("partial_rotary_factor", 1) != 1) {
    config.Refuse("partial_rotary_factor",
                  "expected half of a head in layers that see all and a whole one in the others");
  }
  keys.Set("rope.dimension_count", config.head_dim());
  keys.Set("rope.freq_base_swa", local.NumberOr("rope_theta", 10000));
  keys.Set("swiglu_clamp_exp", Limits(config, "swiglu_limits"));
  keys.Set("swiglu_clamp_shexp", Limits(config, "swiglu_limits_shared"));
  keys.Set("expert_gating_func", 2);
  keys.Set("expert_weights_norm", true);
}

// llama.cpp has one tensor for ropes of whole and of half heads.
void EmitRope(Recipe& recipe) {
  EmitRopeTensorsOf(recipe, static_cast<size_t>(recipe.config().head_dim()) / 2);
}

}  // namespace

Converter ConvertStep35() {
  return {
      .architecture = "step35",
      .classes = {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"},
      .model_types = {"step3p5", "step3p7"},
      .defaults = R"({"moe_router_scaling_factor": 1.0})",
      .keys = SetKeys,
      .model_tensors = {{"model.embed_tokens.weight", "token_embd.weight"},
                        {"model.norm.weight", "output_norm.weight", AddOne},
                        {"lm_head.weight", "output.weight"},
                        {"vit_large_projector.weight", ""}},
      .layer_tensors = Join(
          {{{"input_layernorm.weight", "attn_norm.weight", AddOne},
            {"post_attention_layernorm.weight", "ffn_norm.weight", AddOne},
            {"self_attn.q_norm.weight", "attn_q_norm.weight", AddOne},
            {"self_attn.k_norm.weight", "attn_k_norm.weight", AddOne},
            {"self_attn.g_proj.weight", "attn_gate.weight"}},
           AttentionTensors(),
           DenseLayerTensors(),
           RouterTensors("moe.gate.weight", "moe.router_bias"),
           ExpertTensors({"moe.gate_proj.weight", "moe.up_proj.weight", "moe.down_proj.weight"}),
           SharedExpertTensors("share_expert.gate_proj.weight", "share_expert.up_proj.weight",
                               "share_expert.down_proj.weight"),
           NextTokenTensors(AddOne),
           {{"transformer.shared_head.norm.weight", "nextn.shared_head_norm.weight", AddOne,
             IsNextTokenBlock, Stored::kByType, true},
            {"transformer.shared_head.output.weight", "nextn.shared_head_head.weight", nullptr,
             IsNextTokenBlock, Stored::kByType, true}}}),
      .layers = BlocksWithNextToken,
      .more = EmitRope};
}

}  // namespace lockstep
