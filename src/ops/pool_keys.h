// One key for every `pool` positions, made when the last of them comes (DeepSeek-V4, DeepSeek-AI 2026, section 2.3; the pooled indexer of
// GLM-5). Every position caches a raw row [values: w | gates: w]; entry e is ops/pool_rows.h over the rows of window e, positions
// pool e .. pool e + pool - 1, whose gates get a bias by their place in the window. Where windows overlap, w = 2 d: entry e is made from the
// first d channels of window e - 1, where there is one, followed by the last d channels of window e; otherwise w = d.
//
// Rows are read back from the cache, those of the batch at hand as well: an entry is the same however its positions came.
#pragma once

#include "ops/operations.h"
#include "ops/pool_rows.h"

namespace lockstep {

struct PoolKeysSettings {
  int64_t pool = 1;
  int64_t d = 0;
  bool overlap = false;
  bool gated = true;  // otherwise raw rows are values alone, and an entry is their mean

  int64_t channels() const { return overlap ? 2 * d : d; }
  int64_t rows() const { return overlap ? 2 * pool : pool; }
};

// tokens [t], raw rows (keys alone, 2 w numbers), bias [pool, w] where gated -> [t, 1, d]: the entry that a token completes, zeros where it completes none.
OperationPtr MakePoolKeys(const PoolKeysSettings& settings);

}  // namespace lockstep
