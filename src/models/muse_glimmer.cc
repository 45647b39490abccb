// Muse Glimmer (Meta): normed embeddings, norms on both sides of each branch, gated heads, positions told in windowed layers only.
#include "models/decoder.h"

namespace lockstep {

Graph BuildMuseGlimmer(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  spec.post_norms = true;
  // A key of our own; files without it mean the released models' epsilon.
  spec.post_norm = {NormSpec::Kind::kRms, source.FloatOr("attention.post_norm_rms_epsilon", 1e-8f)};
  spec.embedded = [](Parts& parts, ValueId x) { return parts.PlainNorm("embed_norm", x); };
  SetWindowPattern(source, 4, spec);
  ForEachLayer(spec, [](LayerSpec& layer) {
    layer.attention.qk_norm = AttentionSpec::QkNorm::kHead;
    layer.attention.gate = Activation::kSigmoid;
    if (layer.attention.window == 0) layer.attention.rope.reset();
  });
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
