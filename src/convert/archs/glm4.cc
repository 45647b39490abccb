// GLM-4 0414: norms on both sides of each branch, half of each head rotated, gate and up in one tensor.
#include "convert/converters.h"

namespace lockstep {

Converter ConvertGlm4() {
  return {.architecture = "glm4",
          .classes = {"Glm4ForCausalLM"},
          .model_types = {"glm4"},
          .defaults = R"({"partial_rotary_factor": 0.5})",
          .keys = SetDecoderKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({AttentionTensors(),
                                 PreNormTensors(),
                                 {{"post_self_attn_layernorm.weight", "post_attention_norm.weight"},
                                  {"post_mlp_layernorm.weight", "post_ffw_norm.weight"},
                                  {"mlp.gate_up_proj.*", "ffn_up.*"},
                                  {"mlp.down_proj.*", "ffn_down.*"}}}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
