// Small models of several streams whose attention sees compressed keys (src/models/deepseek4.cc).
#pragma once

#include "tiny_model.h"

namespace lockstep::test {

// Keys and tensors of such a model but those that every model has.
void AddCompressed(const TinyOptions& options, TinyModel& model, const AddTensor& add);

}  // namespace lockstep::test
