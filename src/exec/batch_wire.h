// Batches as bytes, for processes that follow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/executor.h"

namespace lockstep {

std::string EncodeBatch(const Batch& batch);

// A batch that owns what its sequences refer to.
struct OwnedBatch {
  Batch batch;
  std::vector<std::vector<int32_t>> pages;  // of each sequence
  std::vector<float> input;
};
// Throws Failed where the bytes are no batch.
OwnedBatch DecodeBatch(const std::string& bytes);

// Cuts a batch into at most `pieces` of about equal rows, in order: computed one after the other they are the batch. Spans refer to what
// the batch's refer to.
std::vector<Batch> CutBatch(const Batch& batch, int64_t pieces);

}  // namespace lockstep
