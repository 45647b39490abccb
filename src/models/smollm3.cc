// SmolLM3 (Bakouch et al. 2025): Llama with layers that are not told positions.
#include "models/decoder.h"

namespace lockstep {

Graph BuildSmollm3(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  // A key of our own; files without it have every fourth layer so.
  const auto listed = source.OptionalCountPerLayer("attention.rope_layers", std::ssize(spec.layers));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (listed ? (*listed)[i] == 0 : (i + 1) % 4 == 0) spec.layers[i].attention.rope.reset();
  }
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
