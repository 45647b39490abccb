// Command R7B and its kin (Cohere 2024): layer norms, both branches beside each other, positions told in windowed layers only.
#include "models/decoder.h"

namespace lockstep {

Graph BuildCohere2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  spec.parallel = true;
  SetWindowPattern(source, 4, spec);
  ForEachLayer(spec, [](LayerSpec& layer) {
    if (layer.attention.window == 0) layer.attention.rope.reset();
  });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
