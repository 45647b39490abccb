// gpt-oss (OpenAI 2025, arXiv 2508.10925): attention sinks, every second layer windowed, biases everywhere, a clamped SwiGLU whose up side is one
// more, a soft-max over the chosen experts.
#include "models/moe.h"

namespace lockstep {

Graph BuildGptOss(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  SetWindowPattern(source, 2, spec);
  ForEachLayer(spec, [](LayerSpec& layer) { layer.attention.sinks = true; });
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSoftmaxOfChosen});
  Gating& gating = moe.ffn.gating;
  gating.activation = Activation::kGeluQuick;
  gating.gate_limit = gating.up_limit = source.FloatOr("swiglu_limit", 7);
  gating.up_offset = 1;
  SetExperts(source, moe, spec);
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
