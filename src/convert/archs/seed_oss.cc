// Seed-OSS: biases on queries, keys and values; the norm before the feed-forward is named by its place.
#include "convert/converters.h"

namespace lockstep {

Converter ConvertSeedOss() {
  return {.architecture = "seed_oss",
          .classes = {"SeedOssForCausalLM"},
          .model_types = {"seed_oss"},
          .keys = SetDecoderKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({AttentionTensors(),
                    GatedTensors(),
                    {{"input_layernorm.weight", "attn_norm.weight"},
                     {"post_attention_layernorm.weight", "post_attention_norm.weight"}}}),
          .more = EmitRopeTensors};
}

}  // namespace lockstep
