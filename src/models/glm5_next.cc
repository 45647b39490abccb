// GLM-5 Next (Zhipu AI 2026): Kimi's delta attention in most layers, latent attention without positions over pools that an indexer selects in
// the others, experts, all between hyper-connected streams.
#include "models/delta_net.h"
#include "models/hyper_decoder.h"
#include "models/latent_attention.h"
#include "models/moe.h"

namespace lockstep {
namespace {

void SetMixers(const ModelSource& source, DecoderSpec& spec) {
  const LatentAttentionSpec latent = ReadLatentAttention(source, spec);
  UseSelectedAttention(spec, latent, ReadIndexer(source, RopePairing::kHalves, 0),
                       std::vector<bool>(spec.layers.size(), true));
  const KimiDeltaSpec delta = ReadKimiDeltaSpec(source);
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.kv_heads != 0) continue;
    layer.mixer = [delta](Parts& parts, ValueId x) { return BuildKimiDelta(parts, x, delta); };
  }
}

// One bound for the gates and values of all layers.
void SetFeedForwards(const ModelSource& source, DecoderSpec& spec) {
  MoeSpec moe = ReadMoeSpec(source, {MoeSpec::Scoring::kSigmoid, true, 1e-20f});
  moe.shared = ReadSharedExperts(source, moe);
  const auto limits = source.OptionalFloatPerLayer("swiglu_clamp_exp", source.Count("block_count"));
  if (!limits.empty()) {
    moe.ffn.gating.gate_limit = moe.ffn.gating.up_limit = limits[0];
    if (moe.shared) moe.shared->gating = moe.ffn.gating;
    ForEachLayer(spec, [&](LayerSpec& layer) { layer.feed_forward.gating = moe.ffn.gating; });
  }
  SetExperts(source, moe, spec);
}

}  // namespace

Graph BuildGlm5Next(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kHalves);
  spec.ropes.clear();
  if (const int64_t rotated = source.OptionalCount("rope.dimension_count", 0).value_or(0);
      rotated != 0) {
    source.Refuse("rope.dimension_count", fmt::format("expected 0, found {}", rotated));
  }
  SetMixers(source, spec);
  SetFeedForwards(source, spec);
  HyperSpec hyper = ReadHyperConnections(source);
  hyper.weighted_head = false;
  return BuildHyperDecoder(source, spec, hyper);
}

}  // namespace lockstep
