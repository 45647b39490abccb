// Multi-token prediction (DeepSeek-V3, DeepSeek-AI 2024, section 2.2): a block behind a model's layers that predicts the token after the next
// from the model's last hidden row and the next token.
#pragma once

#include "models/decoder.h"

namespace lockstep {

// States the graph of the block, the last layer of `spec`, beside that of its model (ModelOptions::beside). A row stands at the position p of its
// token, p >= 1; its input is the model's hidden row at p - 1, after the final norm, [t, k]; its logits are those of the token at p + 1.
// `hidden` has what the block makes, before the norm of its head.
// Weights, beside a layer's: nextn.enorm, nextn.hnorm, nextn.eh_proj, nextn.shared_head_norm; nextn.embed_tokens and nextn.shared_head_head
// where they are not the model's.
Graph BuildNextToken(const ModelSource& source, const DecoderSpec& spec);

}  // namespace lockstep
