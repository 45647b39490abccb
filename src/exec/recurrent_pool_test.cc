#include "exec/recurrent_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

StateSpec Recurrent(int64_t floats, int64_t row) {
  StateSpec spec;
  spec.kind = StateSpec::Kind::kRecurrent;
  spec.shape = {Axis{'g', floats}};
  spec.row = {Axis{'g', row}};
  return spec;
}

StateSpec Cached() {
  StateSpec spec;
  spec.kv_heads = 1;
  spec.dk = spec.dv = 16;
  return spec;
}

TEST(RecurrentLayout, GivesEveryPartAPlaceOfItsOwnAndStatesTheFirst) {
  const RecurrentLayout layout({Recurrent(100, 7), Cached(), Recurrent(33, 64), Recurrent(1, 1)});
  std::vector<std::pair<int64_t, int64_t>> parts;  // begin, end
  for (int32_t state : {0, 2, 3}) {
    const RecurrentView& view = layout.view(state);
    EXPECT_LE((view.state + view.state_floats) * 4, layout.snapshot_bytes());
    EXPECT_GE(view.kept * 4, layout.snapshot_bytes());
    parts.emplace_back(view.state, view.state + view.state_floats);
    parts.emplace_back(view.kept, view.kept + view.state_floats);
    parts.emplace_back(view.log, view.log + kDropRows * view.row_floats);
  }
  std::ranges::sort(parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].first % 16, 0);
    EXPECT_LE(parts[i].second, i + 1 < parts.size() ? parts[i + 1].first : layout.slot_bytes() / 4);
  }
  EXPECT_GE(layout.view(0).state_floats, 100);
  EXPECT_GE(layout.view(2).row_floats, 64);
  EXPECT_EQ(layout.view(1).state_floats, 0);
  EXPECT_TRUE(RecurrentLayout({Cached()}).empty());
}

float* States(const RecurrentSlot& slot) { return reinterpret_cast<float*>(slot.data); }

// As an executor runs a batch whose rows leave `value` in the state.
void RunRows(RecurrentPool& pool, int64_t slot, int64_t start, int64_t count, float value,
             int64_t restore = -1, int64_t save = -1, int64_t save_at = 0) {
  RecurrentSlot& of = pool.slot(slot);
  const RecurrentRun run{0, count, start, &of};
  pool.Begin(run, restore, save, save_at);
  States(of)[0] = value;
  if (of.snapshot != nullptr) std::memcpy(of.snapshot, of.data, sizeof(float));
  of.checkpoint = run.CheckpointAfter();
  of.position = start + count;
}

TEST(RecurrentPool, BeginsSlotsAnewFromASnapshotOrAsTheyStand) {
  RecurrentPool pool({Recurrent(3, 1)}, 2, 2);
  RunRows(pool, 0, 0, 64, 1, -1, 1, 64);
  RunRows(pool, 0, 64, 1, 2);
  EXPECT_EQ(pool.slot(0).position, 65);
  EXPECT_EQ(pool.slot(0).snapshot, nullptr);
  // Another sequence goes on from the snapshot.
  RecurrentSlot& other = pool.slot(1);
  pool.Begin({0, 5, 64, &other}, 1, -1, 0);
  EXPECT_EQ(States(other)[0], 1);
  EXPECT_EQ(other.position, 64);
  EXPECT_EQ(other.checkpoint, 64);
  // A new one in the first slot does not see what was there.
  pool.Begin({0, 5, 0, &pool.slot(0)}, -1, -1, 0);
  EXPECT_EQ(pool.slot(0).position, 0);
  EXPECT_EQ(pool.slot(0).checkpoint, 0);
}

TEST(RecurrentPool, CountsWhatItMayTake) {
  const std::vector<StateSpec> states = {Recurrent(1000, 10), Cached()};
  const RecurrentLayout layout(states);
  EXPECT_EQ(RecurrentPool::Bytes(states, 3, 5).value_or(0),
            static_cast<uint64_t>(3 * layout.slot_bytes() + 5 * layout.snapshot_bytes()));
  EXPECT_EQ(RecurrentPool::Bytes({Cached()}, 3, 5).value_or(1), 0u);
  EXPECT_FALSE(RecurrentPool::Bytes({Recurrent(int64_t{1} << 47, 1)}, int64_t{1} << 20, 0).valid());
  RecurrentPool none({Cached()}, 4, 4);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.snapshots(), 0);
}

}  // namespace
}  // namespace lockstep
