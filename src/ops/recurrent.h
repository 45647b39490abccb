// State that a layer carries from token to token: where it lies, and how a batch takes it on.
//
// The canonical recurrence is token by token, so a state's bits depend on the tokens before it alone. A sequence owns one *slot*, in which each
// recurrent state has three parts: the state as it stands; the state as it stood at a *checkpoint*; and the rows taken in since,
// as far as the state depends on them (the log). A batch that begins before the position where the slot stands has dropped rows: the
// state then goes back to the checkpoint and takes in the logged rows again, which is the same sequence of operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/attention.h"

namespace lockstep {

// Rows of a log. After any batch at least its last kDropRows rows may be dropped, all of them where it had fewer.
inline constexpr int64_t kDropRows = 32;

// One sequence's states and how far they have come. Both positions are 0 in a slot that is given to a new sequence. Batches begin where
// the slot stands, or anywhere from the checkpoint on, or at 0.
struct RecurrentSlot {
  std::byte* data = nullptr;
  int64_t position = 0;    // tokens taken in
  int64_t checkpoint = 0;  // tokens taken in at the checkpoint
  // Where the next batch copies the states as they stand at `snapshot_at`, which lies within it or at one of its ends; null: nowhere.
  std::byte* snapshot = nullptr;
  int64_t snapshot_at = 0;
};

// Where one state lies in a slot. Offsets count floats.
struct RecurrentView {
  int64_t state_floats = 0;  // of the state
  int64_t row_floats = 0;    // of one logged row
  int64_t state = 0, kept = 0, log = 0;
};

// The rows of one sequence in a batch.
struct RecurrentRun {
  int64_t first = 0, count = 0;  // rows of the batch
  int64_t start = 0;             // position of the first
  RecurrentSlot* slot = nullptr;

  // Where the checkpoint stands after the batch. It moves as soon as there is more than one row, so that a rejected draft costs no more
  // than the rows of its own batch; one by one, rows fill the log first.
  int64_t CheckpointAfter() const {
    const int64_t end = start + count;
    const bool moves = count > 1 || start == slot->checkpoint || end - slot->checkpoint > kDropRows;
    return moves ? std::max(start, end - kDropRows) : slot->checkpoint;
  }
};

// Calls run(RecurrentRun) for each sequence of a batch.
template <typename F>
void ForEachRun(std::span<const AttentionRow> places, F run) {
  const auto rows = static_cast<int64_t>(places.size());
  auto slot = [&](int64_t t) { return places[static_cast<size_t>(t)].recurrent; };
  for (int64_t first = 0, end = 0; first < rows; first = end) {
    while (end < rows && slot(end) == slot(first)) ++end;
    run(RecurrentRun{first, end - first, places[static_cast<size_t>(first)].position, slot(first)});
  }
}

// Takes one part of a state through a run. `part` knows which part, and has
//   Clear()              state = 0
//   Keep(), Restore()    kept = state, state = kept
//   Save()               snapshot = state
//   Replay(rows)         takes in the first rows of the log, without results
//   Advance(first, end)  takes in rows of the batch and writes their results
//   Log(row, index)      copies a row of the batch into the log
template <typename Part>
void TakeIn(const RecurrentRun& run, Part&& part) {
  const RecurrentSlot& slot = *run.slot;
  if (run.start == 0) {
    part.Clear();
  } else if (run.start < slot.position) {
    part.Restore();
    part.Replay(run.start - slot.checkpoint);
  }
  const int64_t end = run.first + run.count;
  // As rows of the batch; before it where there is nothing to do.
  const int64_t keep_at = run.first + run.CheckpointAfter() - run.start;
  const int64_t save_at =
      slot.snapshot == nullptr ? run.first - 1 : run.first + slot.snapshot_at - run.start;
  int64_t row = run.first;
  for (int64_t stop : {std::min(keep_at, save_at), std::max(keep_at, save_at), end}) {
    if (stop < run.first) continue;
    part.Advance(row, stop);
    if (stop == keep_at) part.Keep();
    if (stop == save_at) part.Save();
    row = stop;
  }
  for (row = std::max(run.first, keep_at); row < end; ++row) part.Log(row, row - keep_at);
}

}  // namespace lockstep
