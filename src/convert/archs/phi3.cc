// Phi-3 and Phi-4-mini: fused projections, one window for all layers, LongRoPE.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  if (config.Has("sliding_window")) SetWindowKeys(config, 0, keys);
}

}  // namespace

Converter ConvertPhi3() {
  return {.architecture = "phi3",
          .classes = {"Phi3ForCausalLM"},
          .model_types = {"phi3"},
          .keys = SetKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(),
                                 {{"self_attn.qkv_proj.*", "attn_qkv.*"},
                                  {"self_attn.o_proj.*", "attn_output.*"},
                                  {"mlp.gate_up_proj.*", "ffn_up.*"},
                                  {"mlp.down_proj.*", "ffn_down.*"}}}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
