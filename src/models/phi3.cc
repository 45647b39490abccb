// Phi-3 and Phi-4-mini (Abdin et al. 2024): fused projections, partial rotary, LongRoPE, one window for all layers.
#include "models/decoder.h"

namespace lockstep {

Graph BuildPhi3(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  ForEachLayer(spec, [](LayerSpec& layer) { layer.feed_forward.gate_in_up = true; });
  SetWindowPattern(source, 0, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
