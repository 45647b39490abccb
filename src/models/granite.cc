// Granite 3 dense (IBM): Llama with multipliers on embeddings, attention, residual branches and logits.
#include "models/decoder.h"

namespace lockstep {

Graph BuildGranite(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  // The file's logit scale divides.
  if (spec.logit_scale == 0) source.Refuse("logit_scale", "expected a number other than 0");
  spec.logit_scale = 1 / spec.logit_scale;
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
