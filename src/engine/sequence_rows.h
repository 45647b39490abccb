// Rows of one sequence through a graph, in micro-batches.
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "exec/ranks.h"

namespace lockstep {

struct SequenceRows {
  std::span<const int32_t> pages;     // of the whole sequence
  std::span<const int32_t> tokens;    // [t]
  int64_t position = 0;               // of the first
  int64_t first_wanted = 0;           // rows before it have no results
  std::span<const float> input = {};  // [t, width], of graphs that take rows
  int64_t restore = -1;  // the snapshot with which recurrent states begin, below 0: as they are
  int64_t save = -1;     // the one that takes them at the last page's end within; below 0: none
};

// The rows of one batch: [begin, end) of all, [wanted, end) with results. The last of these may be empty.
struct RowsDone {
  int64_t begin, wanted, end;
};

// Runs a batch. Throws Failed where a number is not finite, naming step and position, and Error(kInterrupted) before it begins.
void RunFinite(const Batch& batch, RankSet& ranks);

// Runs them in slot 0 and calls `done` after each batch. Throws as RunFinite() does.
void RunRows(const SequenceRows& rows, RankSet& ranks, FunctionRef<void(const RowsDone&)> done);

}  // namespace lockstep
