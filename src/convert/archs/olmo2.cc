// OLMo 2 and 3: norms after the branches only, norms over all heads of queries and keys; OLMo 3 has windows, whose rope is not scaled.
#include "convert/converters.h"

namespace lockstep {
namespace {

void SetWindowedKeys(const Config& config, Keys& keys) {
  SetDecoderKeys(config, keys);
  SetWindowKeys(config, 4, keys);
  const double all = config.Rope().Number("rope_theta");
  if (const double local = config.Rope("sliding_attention").NumberOr("rope_theta", all); local != all)
    keys.Set("rope.freq_base_swa", local);
}

}  // namespace

Converter ConvertOlmo2() {
  return {.architecture = "olmo2",
          .classes = {"Olmo2ForCausalLM"},
          .model_types = {"olmo2"},
          .keys = SetDecoderKeys,
          .model_tensors = ModelTensors(),
          .layer_tensors =
              Join({AttentionTensors(),
                    HeadNormTensors(),
                    GatedTensors(),
                    {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
                     {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}}}),
          .more = EmitRopeTensors};
}

Converter ConvertOlmo3() {
  Converter converter = ConvertOlmo2();
  converter.classes = {"Olmo3ForCausalLM"};
  converter.model_types = {"olmo3"};
  converter.defaults = R"({"sliding_window": 4096, "rope_theta": 500000.0})";
  converter.keys = SetWindowedKeys;
  return converter;
}

}  // namespace lockstep
