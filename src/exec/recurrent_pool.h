// Recurrent states of all sequences: a pool of slots (ops/recurrent.h), and of snapshots of states.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "graph/graph.h"

namespace lockstep {

// Where the recurrent states of a graph lie in a slot. The states as they stand come first and side by side: they are what a
// snapshot holds.
class RecurrentLayout {
 public:
  explicit RecurrentLayout(const std::vector<StateSpec>& states);

  // Whether there are any.
  bool empty() const { return state_floats_ == 0; }
  int64_t slot_bytes() const { return slot_floats_ * 4; }
  int64_t snapshot_bytes() const { return state_floats_ * 4; }
  // The view of a state by its index in Graph::states; of nothing where it is not recurrent.
  const RecurrentView& view(int32_t state) const { return views_[static_cast<size_t>(state)]; }

 private:
  std::vector<RecurrentView> views_;
  int64_t state_floats_ = 0, slot_floats_ = 0;
};

// Slots and snapshots are handed out by whoever schedules; memory is taken when one is first written.
class RecurrentPool {
 public:
  // Throws Failed where memory is short.
  RecurrentPool(const std::vector<StateSpec>& states, int64_t slots, int64_t snapshots);

  // Bytes that a pool will take at most.
  static Size Bytes(const std::vector<StateSpec>& states, int64_t slots, int64_t snapshots);

  bool empty() const { return layout_.empty(); }
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t snapshots() const { return snapshots_; }
  RecurrentSlot& slot(int64_t i) { return slots_[static_cast<size_t>(i)]; }
  const RecurrentView& view(int32_t state) const { return layout_.view(state); }
  // Makes a slot ready for a run: anew at position 0, from a snapshot, or as it stands; `save` is the snapshot to take at save_at.
  // Snapshots are -1 where there is none.
  void Begin(const RecurrentRun& run, int64_t restore, int64_t save, int64_t save_at);
  // The states of a snapshot, as they lie in the first part of a slot.
  std::byte* snapshot(int64_t i);

 private:
  RecurrentLayout layout_;
  int64_t snapshots_;
  Buffer memory_;
  Buffer snapshot_memory_;
  std::vector<RecurrentSlot> slots_;
};

}  // namespace lockstep
