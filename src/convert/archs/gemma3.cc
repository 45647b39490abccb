// Gemma 3 text: five windowed layers to one that sees all, each kind with its own rotary base, norms of
// each head's query and key.
#include "convert/archs/gemma.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetWindowKeys(config, 6, keys);
  if (const auto period = config.OptionalCount("sliding_window_pattern"); period && *period != 6) {
    keys.Set("attention.sliding_window_pattern", *period);
  }
  const Config windowed = config.Rope("sliding_attention");
  keys.Set("rope.freq_base_swa",
           config.NumberOr("rope_local_base_freq", windowed.NumberOr("rope_theta", 10000)));
  if (const auto cap = config.OptionalNumber("final_logit_softcapping")) {
    keys.Set("final_logit_softcapping", *cap);
  }
  SetGemmaScaleKey(config, keys);
}

std::vector<TensorRule> HeadNorms() {
  return {{"self_attn.q_norm.weight", "attn_q_norm.weight", AddOne},
          {"self_attn.k_norm.weight", "attn_k_norm.weight", AddOne}};
}

}  // namespace

Converter ConvertGemma3() {
  return {.architecture = "gemma3",
          .classes = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
          .model_types = {"gemma3_text", "gemma3"},
          .defaults =
              R"({"tie_word_embeddings": true, "num_attention_heads": 8, "num_key_value_heads": 4,
                          "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
                          "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
                          "sliding_window": 4096})",
          .keys = SetKeys,
          .model_tensors = GemmaModelTensors(),
          .layer_tensors = Join({GemmaLayerTensors(), HeadNorms()}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
