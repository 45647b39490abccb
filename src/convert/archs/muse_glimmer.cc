// Muse Glimmer text: norms on both sides of each branch, gated heads, positions told in windowed layers only.
#include "convert/converters.h"

namespace lockstep {
namespace {

constexpr double kUsualPostEpsilon = 1e-8;

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetWindowKeys(config, 4, keys);
  keys.Set("final_logit_softcapping", config.Number("final_logit_softcapping"));
  keys.Set("logit_scale", config.Number("output_multiplier"));
  // A key of our own: llama.cpp knows the released models' epsilon only.
  if (const double epsilon = config.NumberOr("post_norm_eps", kUsualPostEpsilon); epsilon != kUsualPostEpsilon) {
    keys.Set("attention.post_norm_rms_epsilon", epsilon);
  }
  const std::vector<bool> windowed = config.WindowedLayers();
  const std::vector<double> bases = config.Numbers("layer_rope_theta");
  for (size_t i = 0; i < bases.size(); ++i) {
    const double expected = i < windowed.size() && windowed[i] ? config.Rope().NumberOr("rope_theta", 10000) : 0;
    if (bases[i] != expected) {
      config.Refuse("layer_rope_theta", fmt::format("expected {} in layer {}, as no file can say otherwise, found {}", expected, i, bases[i]));
    }
  }
}

// Norms of queries and keys have no weight in checkpoints, a factor instead; files have both as weights.
void EmitHeadNorms(Recipe& recipe) {
  EmitRopeTensors(recipe);
  const Config& config = recipe.config();
  const auto width = static_cast<size_t>(config.head_dim());
  const auto factor = static_cast<float>(config.Number("qk_scale_factor"));
  for (int64_t i = 0; i < config.layers(); ++i) {
    for (const auto& [name, value] : {std::pair("attn_q_norm", factor), std::pair("attn_k_norm", 1.0f)}) {
      recipe.Emit(fmt::format("blk.{}.{}.weight", i, name), Values::Of(name, {width}, std::vector<float>(width, value)));
    }
  }
}

}  // namespace

Converter ConvertMuseGlimmer() {
  return {.architecture = "muse-glimmer",
          .classes = {"MuseGlimmerForConditionalGeneration", "MuseGlimmerForCausalLM"},
          .model_types = {"muse_glimmer", "muse_glimmer_text"},
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({AttentionTensors(PairQueries, PairKeys),
                                 GatedTensors(),
                                 {{"self_attn.gate_proj.weight", "attn_gate.weight"},
                                  {"input_layernorm.weight", "attn_norm.weight", AddOne},
                                  {"post_attention_layernorm.weight", "post_attention_norm.weight", AddOne},
                                  {"pre_feedforward_layernorm.weight", "ffn_norm.weight", AddOne},
                                  {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", AddOne}}}),
          .more = EmitHeadNorms};
}

}  // namespace lockstep
