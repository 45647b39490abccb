// Scores of cached index keys for one token: sum over heads of w[h] relu(scale q[h] . k), as a lightning indexer has them (DeepSeek-V3.2,
// DeepSeek-AI 2025, section 2.1).
//
// Canonical order, for an entry e:
//   dot      by fma over d ascending from 0
//   r(h)     = scale * dot, 0 where that is not above 0
//   score(e) = fma(w[h], r(h), score) over heads ascending from 0; w = 1 without weights
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kv_layout.h"

namespace lockstep {

// One token's queries and the index keys of its sequence: K by rows, of one head.
struct IndexScoresTask {
  KvLayout layout;
  int64_t k_offset;
  const std::byte* const* pages;
  const float* q;        // [h, d]
  const float* weights;  // [h] or null
  int64_t heads;
  float scale;
};

// Scores of entries first .. first + count - 1, count <= 64, first a multiple of 64. scores: [64], what is beyond count is undefined.
// Scratch: IndexScratchBytes, 64-byte aligned.
using IndexScoresFn = void(const IndexScoresTask& task, int64_t first, int64_t count, float* scores,
                           std::byte* scratch);
IndexScoresFn IndexScoresReference;
size_t IndexScratchBytes(const KvLayout& layout);

// How that scratch is cut.
struct IndexScratch {
  float* q;          // [d, group]
  float* scores;     // [group, 64]
  float* keys;       // [4, d rounded up to 32, 16]
  std::byte* rows;   // [64, row of K], entries gathered from several pages
  size_t bytes = 0;  // of all

  IndexScratch(const KvLayout& layout, std::byte* at);
};

}  // namespace lockstep
