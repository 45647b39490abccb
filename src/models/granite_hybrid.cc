// Granite 4 (IBM 2025): Mamba-2 in most layers, attention without positions in some, experts beside a feed-forward that all tokens see.
#include "models/mamba.h"
#include "models/moe.h"

namespace lockstep {

Graph BuildGraniteHybrid(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  // The file's logit scale divides.
  if (spec.logit_scale == 0) source.Refuse("logit_scale", "expected a number other than 0");
  spec.logit_scale = 1 / spec.logit_scale;
  const MambaSpec mamba = ReadMambaSpec(source);
  const bool rotated = source.BoolOr("rope.scaling.finetuned", true);
  for (LayerSpec& layer : spec.layers) {
    if (!rotated) layer.attention.rope.reset();
    if (layer.attention.kv_heads != 0) continue;
    layer.mixer = [mamba](Parts& parts, ValueId x) { return BuildMamba(parts, x, mamba); };
  }
  if (source.OptionalCount("expert_count", 0).value_or(0) != 0) {
    MoeSpec moe = ReadMoeSpec(source, {.scoring = MoeSpec::Scoring::kSoftmaxOfChosen});
    moe.shared = ReadSharedExperts(source, moe);
    SetExperts(source, moe, spec);
  }
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
