// Gemma 2: soft caps, every second layer windowed, norms on both sides of each branch.
#include <cmath>

#include "convert/archs/gemma.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetWindowKeys(config, 2, keys);
  keys.Set("attn_logit_softcapping", config.Number("attn_logit_softcapping"));
  keys.Set("final_logit_softcapping", config.Number("final_logit_softcapping"));
  SetGemmaScaleKey(config, keys);
}

}  // namespace

std::vector<TensorRule> GemmaModelTensors() {
  return {{"model.embed_tokens.weight", "token_embd.weight"},
          {"model.norm.weight", "output_norm.weight", AddOne},
          {"lm_head.*", ""}};
}

std::vector<TensorRule> GemmaLayerTensors() {
  return Join({AttentionTensors(),
               GatedTensors(),
               {{"input_layernorm.weight", "attn_norm.weight", AddOne},
                {"post_attention_layernorm.weight", "post_attention_norm.weight", AddOne},
                {"pre_feedforward_layernorm.weight", "ffn_norm.weight", AddOne},
                {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", AddOne}}});
}

void SetGemmaScaleKey(const Config& config, Keys& keys) {
  const double scalar = config.Number("query_pre_attn_scalar");
  if (!(scalar > 0)) config.Refuse("query_pre_attn_scalar", "expected more than 0");
  if (scalar != static_cast<double>(config.head_dim()))
    keys.Set("attention.scale", 1 / std::sqrt(scalar));
}

Converter ConvertGemma2() {
  return {.architecture = "gemma2",
          .classes = {"Gemma2ForCausalLM"},
          .model_types = {"gemma2"},
          .defaults = R"({"tie_word_embeddings": true, "head_dim": 256, "rms_norm_eps": 1e-6,
                          "query_pre_attn_scalar": 256, "sliding_window": 4096,
                          "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})",
          .keys = SetKeys,
          .model_tensors = GemmaModelTensors(),
          .layer_tensors = GemmaLayerTensors(),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
