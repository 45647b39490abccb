// Hunyuan dense (0.5B to 7B): norms of each head's query and key, after they are rotated.
#include "convert/converters.h"

namespace lockstep {

Converter ConvertHunyuanDense() {
  return {.architecture = "hunyuan-dense",
          .classes = {"HunYuanDenseV1ForCausalLM"},
          .model_types = {"hunyuan_v1_dense"},
          .keys = SetDecoderKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors = Join({PreNormTensors(),
                                 AttentionTensors(),
                                 GatedTensors(),
                                 {{"self_attn.query_layernorm.weight", "attn_q_norm.weight"},
                                  {"self_attn.key_layernorm.weight", "attn_k_norm.weight"}}}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
