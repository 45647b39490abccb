// gpt-oss: gate and up interleaved in one tensor, in MXFP4 as rows of the inputs, else transposed.
#include "convert/moe_rules.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetWindowKeys(config, 2, keys);
  SetMoeKeys(config, keys);
  keys.Set("expert_feed_forward_length", config.Count("intermediate_size"));
  // A key of our own, where the bound is not that of all releases.
  if (const double limit = config.NumberOr("swiglu_limit", 7); limit != 7)
    keys.Set("swiglu_limit", limit);
  if (config.NumberOr("swiglu_alpha", 1.702) != 1.702)
    config.Refuse("swiglu_alpha", "expected 1.702");
}

// [e, rows, columns] as multiplications want them, rows of inputs: packed numbers lie so, others are transposed.
Values Rows(const Values& values, const Place& place, uint64_t columns) {
  if (values.dims().size() == 3 && values.dims()[2] == columns &&
      &values.own() == FindFormat(std::string_view("MXFP4"))) {
    return values;
  }
  return place.is_bias ? values : Transpose(values);
}
uint64_t Width(const Place& place) {
  return static_cast<uint64_t>(place.config.Count("hidden_size"));
}
uint64_t Inner(const Place& place) {
  return static_cast<uint64_t>(place.config.Count("intermediate_size"));
}

Values Gate(const Values& values, const Place& place) {
  return Slice(Rows(values, place, Width(place)), 1, 0, Inner(place), 2);
}
Values Up(const Values& values, const Place& place) {
  return Slice(Rows(values, place, Width(place)), 1, 1, Inner(place), 2);
}
Values Down(const Values& values, const Place& place) { return Rows(values, place, Inner(place)); }
Values GateBias(const Values& values, const Place& place) {
  return Slice(values, 1, 0, Inner(place), 2);
}
Values UpBias(const Values& values, const Place& place) {
  return Slice(values, 1, 1, Inner(place), 2);
}

}  // namespace

Converter ConvertGptOss() {
  return {
      .architecture = "gpt-oss",
      .classes = {"GptOssForCausalLM"},
      .model_types = {"gpt_oss"},
      .defaults =
          R"({"num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "head_dim": 64,
                          "rope_theta": 150000.0, "rms_norm_eps": 1e-5})",
      .keys = SetKeys,
      .model_tensors = ModelTensors(),
      .layer_tensors = Join(
          {{{"input_layernorm.weight", "attn_norm.weight"},
            {"post_attention_layernorm.weight", "post_attention_norm.weight"},
            {"self_attn.sinks", "attn_sinks.weight", nullptr, nullptr, Stored::kF32},
            {"mlp.router.weight", "ffn_gate_inp.weight", nullptr, nullptr, Stored::kF32},
            {"mlp.router.bias", "ffn_gate_inp.bias", nullptr, nullptr, Stored::kF32},
            {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", Gate},
            {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", Up},
            {"mlp.experts.down_proj", "ffn_down_exps.weight", Down},
            {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", GateBias, nullptr,
             Stored::kF32},
            {"mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", UpBias, nullptr, Stored::kF32},
            {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", nullptr, nullptr, Stored::kF32}},
           AttentionTensors()}),
      .more = EmitRopeTensors};
}

}  // namespace lockstep
