#include "base/bandwidth.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep {
namespace {

TEST(Bandwidth, IsPlausibleAndQuickForOneAndTwoMembers) {
  for (int members : {1, 2}) {
    ThreadTeam team(members);
    auto start = std::chrono::steady_clock::now();
    double bytes_per_s = MeasureReadBandwidth(team, uint64_t{64} << 20);
    EXPECT_GT(bytes_per_s, 5e7) << members;
    EXPECT_LT(bytes_per_s, 1e13) << members;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << members;
  }
}

TEST(Bandwidth, TakesAnySizeEvenNone) {
  ThreadTeam team(3);
  EXPECT_GT(MeasureReadBandwidth(team, 0), 0.0);
}

}  // namespace
}  // namespace lockstep
