// Gemma 3 text (Kamath et al. 2025): five windowed layers to one that sees all, each kind with its own rope, norms on queries and keys.
#include <cmath>

#include "models/decoder.h"

namespace lockstep {

Graph BuildGemma3(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.width));
  spec.post_norms = true;
  // As Gemma 2: files of the 27B model carry no scale.
  const bool by_width = spec.layers.size() == 62;
  ForEachLayer(spec, [&](LayerSpec& layer) {
    layer.feed_forward.gating.activation = Activation::kGeluTanh;
    AttentionSpec& attention = layer.attention;
    attention.qk_norm = AttentionSpec::QkNorm::kHead;
    if (attention.scale == 0 && by_width) attention.scale = 1 / std::sqrt(static_cast<float>(spec.width / attention.heads));
  });
  // The base default of files without the key is that of the layers that see all.
  const int64_t n_rot = spec.ropes[0].options.n_rot;
  spec.ropes[0].options = ReadRopeOptions(source, n_rot, "rope.freq_base", 1000000);
  SetWindowPattern(source, 6, spec);
  SetWindowedRope(spec, WindowedRope(source, n_rot, 10000));
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
