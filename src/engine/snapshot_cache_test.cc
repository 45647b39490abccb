#include "engine/snapshot_cache.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

int64_t Add(SnapshotCache& cache, uint64_t prefix) {
  const std::optional<int64_t> snapshot = cache.Reserve();
  EXPECT_TRUE(snapshot.has_value());
  cache.Publish(*snapshot, prefix);
  return *snapshot;
}

TEST(SnapshotCache, FindsWhatWasPublished) {
  SnapshotCache cache(3);
  EXPECT_FALSE(cache.Find(7));
  const int64_t seven = Add(cache, 7), nine = Add(cache, 9);
  EXPECT_NE(seven, nine);
  EXPECT_EQ(cache.Find(7), seven);
  EXPECT_EQ(cache.Find(9), nine);
  EXPECT_FALSE(cache.Find(8));
}

TEST(SnapshotCache, GivesUpTheLeastRecentlyUsed) {
  SnapshotCache cache(2);
  const int64_t first = Add(cache, 1), second = Add(cache, 2);
  EXPECT_EQ(cache.Find(1), first);
  EXPECT_EQ(Add(cache, 3), second);
  EXPECT_FALSE(cache.Find(2));
  EXPECT_EQ(cache.Find(1), first);
}

TEST(SnapshotCache, ReservesEachOnceUntilItIsGivenBack) {
  SnapshotCache cache(3);
  Add(cache, 1);
  std::set<int64_t> reserved;
  for (int i = 0; i < 3; ++i) reserved.insert(*cache.Reserve());
  EXPECT_EQ(reserved, (std::set<int64_t>{0, 1, 2}));
  EXPECT_FALSE(cache.Reserve());
  EXPECT_FALSE(cache.Find(1));
  cache.Release(1);
  EXPECT_EQ(cache.Reserve(), 1);
  EXPECT_FALSE(cache.Reserve());
}

TEST(SnapshotCache, KeepsTheSnapshotThatAPrefixHas) {
  SnapshotCache cache(2);
  const int64_t first = Add(cache, 5), other = Add(cache, 5);
  EXPECT_EQ(cache.Find(5), first);
  // The second is free again.
  EXPECT_EQ(cache.Reserve(), other);
}

TEST(SnapshotCache, ForgetsWhatIsDropped) {
  SnapshotCache cache(2);
  const int64_t first = Add(cache, 1);
  Add(cache, 2);
  cache.Drop(1);
  cache.Drop(77);
  EXPECT_FALSE(cache.Find(1));
  EXPECT_EQ(cache.Reserve(), first);
}

TEST(SnapshotCache, MayBeEmpty) {
  SnapshotCache cache(0);
  EXPECT_FALSE(cache.Reserve());
  EXPECT_FALSE(cache.Find(1));
}

}  // namespace
}  // namespace lockstep
