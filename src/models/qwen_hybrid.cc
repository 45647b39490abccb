// Qwen3-Next and Qwen3.5 (Qwen team 2025, 2026): three gated delta networks to one attention with an output gate, dense or with experts.
// Files of Qwen3.5 have their value heads tiled over the key heads.
#include "models/delta_net.h"
#include "models/moe.h"

namespace lockstep {
namespace {

DecoderSpec ReadHybridSpec(const ModelSource& source, bool tiled) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  DeltaNetSpec delta = ReadDeltaNetSpec(source);
  delta.tiled = tiled;
  const std::vector<bool> recurrent = ReadRecurrentLayers(source, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].attention.qk_norm = AttentionSpec::QkNorm::kHead;
    spec.layers[i].attention.gate_in_query = true;
    if (recurrent[i])
      spec.layers[i].mixer = [delta](Parts& parts, ValueId x) {
        return BuildDeltaNet(parts, x, delta);
      };
  }
  return spec;
}

DecoderSpec WithExperts(const ModelSource& source, DecoderSpec spec) {
  MoeSpec moe = ReadMoeSpec(source, {.normalize = true});
  moe.shared = ReadSharedExperts(source, moe);
  moe.shared_gate = true;
  SetExperts(source, moe, spec);
  return spec;
}

}  // namespace

Graph BuildQwen3Next(const ModelSource& source) {
  return BuildDecoder(source, WithExperts(source, ReadHybridSpec(source, false)));
}
Graph BuildQwen35Moe(const ModelSource& source) {
  return BuildDecoder(source, WithExperts(source, ReadHybridSpec(source, true)));
}
Graph BuildQwen35(const ModelSource& source) {
  return BuildDecoder(source, ReadHybridSpec(source, true));
}

}  // namespace lockstep
