// Granite 3 dense (IBM): Llama with multipliers on embeddings, attention, residual branches and logits.
#include "models/decoder.h"

namespace lockstep {

Graph BuildGranite(const ModelSource& source) {
  DecoderSpec spec = ReadDecoderSpec(source, RopePairing::kPairs);
  // The file's logit scale divides.
  spec.logit_scale = 1 / spec.logit_scale;
  return BuildDecoder(source, spec);
}

}  // namespace lockstep
