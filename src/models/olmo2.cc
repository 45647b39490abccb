// OLMo 2 (OLMo team 2024): norms after the branches only, norms over all heads of queries and keys. OLMo 3 (2025) has windows in three layers of
// four, where the rope is not scaled.
#include "models/decoder.h"

namespace lockstep {

Graph BuildOlmo2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  if (source.OptionalCount("attention.sliding_window", 0).value_or(0) != 0) {
    SetWindowPattern(source, 4, spec);
    const RopeOptions& all = spec.ropes[0].options;
    SetWindowedRope(spec, WindowedRope(source, all.n_rot, all.base));
  }
  spec.pre_norms = false;
  spec.post_norms = true;
  ForEachLayer(spec, [](LayerSpec& layer) { layer.attention.qk_norm = AttentionSpec::QkNorm::kAll; });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
