#include "exec/recurrent_pool.h"

#include <cstring>

#include "base/checked.h"
#include "base/error.h"

namespace lockstep {
namespace {

// Parts start on lines of their own: threads write neighbouring ones.
int64_t Floats(const Shape& shape) {
  return RoundUp(static_cast<int64_t>(shape.Count().value_or(0)), 16);
}

Size Times(int64_t count, int64_t bytes) {
  return Size(static_cast<uint64_t>(count)) * Size(static_cast<uint64_t>(bytes));
}

}  // namespace

RecurrentLayout::RecurrentLayout(const std::vector<StateSpec>& states) : views_(states.size()) {
  auto place = [&](int64_t RecurrentView::*part, auto floats) {
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i].kind != StateSpec::Kind::kRecurrent) continue;
      views_[i].*part = slot_floats_;
      slot_floats_ += floats(states[i]);
    }
  };
  place(&RecurrentView::state, [](const StateSpec& spec) { return Floats(spec.shape); });
  state_floats_ = slot_floats_;
  place(&RecurrentView::kept, [](const StateSpec& spec) { return Floats(spec.shape); });
  place(&RecurrentView::log, [](const StateSpec& spec) { return kDropRows * Floats(spec.row); });
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].kind != StateSpec::Kind::kRecurrent) continue;
    views_[i].state_floats = Floats(states[i].shape);
    views_[i].row_floats = Floats(states[i].row);
  }
}

Size RecurrentPool::Bytes(const std::vector<StateSpec>& states, int64_t slots, int64_t snapshots) {
  const RecurrentLayout layout(states);
  return Times(slots, layout.slot_bytes()) + Times(snapshots, layout.snapshot_bytes());
}

RecurrentPool::RecurrentPool(const std::vector<StateSpec>& states, int64_t slots, int64_t snapshots)
    : layout_(states),
      snapshots_(layout_.empty() ? 0 : snapshots),
      memory_(Times(slots, layout_.slot_bytes()), "recurrent states"),
      snapshot_memory_(Times(snapshots_, layout_.snapshot_bytes()),
                       "snapshots of recurrent states"),
      slots_(static_cast<size_t>(slots)) {
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i].data = memory_.data() + static_cast<int64_t>(i) * layout_.slot_bytes();
}

std::byte* RecurrentPool::snapshot(int64_t i) {
  LOCKSTEP_CHECK(i < snapshots_, "snapshot {} of {}", i, snapshots_);
  return snapshot_memory_.data() + i * layout_.snapshot_bytes();
}

void RecurrentPool::Begin(const RecurrentRun& run, int64_t restore, int64_t save, int64_t save_at) {
  RecurrentSlot& slot = *run.slot;
  if (restore >= 0)
    std::memcpy(slot.data, snapshot(restore), static_cast<size_t>(layout_.snapshot_bytes()));
  if (restore >= 0 || run.start == 0) slot.position = slot.checkpoint = run.start;
  LOCKSTEP_CHECK(run.start >= slot.checkpoint && run.start <= slot.position,
                 "a batch at position {} of a slot that may go on from {} to {}", run.start,
                 slot.checkpoint, slot.position);
  slot.snapshot = save >= 0 ? snapshot(save) : nullptr;
  slot.snapshot_at = save_at;
  LOCKSTEP_CHECK(save < 0 || (save_at >= run.start && save_at <= run.start + run.count),
                 "a snapshot at {} in a batch of {} rows at {}", save_at, run.count, run.start);
}

}  // namespace lockstep
