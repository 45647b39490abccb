// Small models of gated residual streams with embeddings of n-grams (src/models/qwen4_exp.cc).
#pragma once

#include "tiny_model.h"

namespace lockstep::test {

void SetGatedStreams(TinyOptions& options);
// Keys and tensors of such a model but those that every model has.
void AddGatedStreams(const TinyOptions& options, TinyModel& model, const AddTensor& add);

}  // namespace lockstep::test
