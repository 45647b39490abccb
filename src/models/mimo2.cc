// MiMo-V2-Flash (Xiaomi 2025): windowed layers with sinks and more KV heads of their own, values narrower than keys and scaled, sigmoid
// scores with a correction of the choice.
#include <fmt/format.h>

#include "models/moe.h"

namespace lockstep {

Graph BuildMimo2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  SetWindowPattern(source, 6, spec);
  SetWindowedRope(spec, WindowedRope(source, spec.ropes[0].options.n_rot, 10000));
  const float value_scale = source.FloatOr("attention.value_scale", 1);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    attention.value_scale = value_scale;
    attention.sinks =
        attention.window != 0 || source.HasTensor(fmt::format("blk.{}.attn_sinks.weight", i));
  }
  SetExperts(source, ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid, true, 1e-20f}), spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
