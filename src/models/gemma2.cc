// Gemma 2 (Riviere et al. 2024): scaled embeddings, norms on both sides of each branch, soft caps, every second layer windowed.
#include <cmath>

#include "models/decoder.h"

namespace lockstep {

Graph BuildGemma2(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.width));
  spec.post_norms = true;
  // Files of the 27B model carry no scale of their own: it divides by width over heads instead of the head's width.
  const bool by_width = spec.layers.size() == 46;
  ForEachLayer(spec, [&](LayerSpec& layer) {
    layer.feed_forward.gating.activation = Activation::kGeluTanh;
    AttentionSpec& attention = layer.attention;
    if (attention.scale == 0 && by_width) attention.scale = 1 / std::sqrt(static_cast<float>(spec.width / attention.heads));
  });
  SetWindowPattern(source, 2, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
