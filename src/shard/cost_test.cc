#include "shard/cost.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr RankSpeed kSpeed = {
    .bytes_per_s = 100, .ops_per_s = 1000, .link_bytes_per_s = 8, .collective_seconds = 0.25};

ShardedGraph TwoRanks() {
  ShardedGraph sharded;
  sharded.plan.mesh = {.tensor = 2, .pipeline = 1};
  // Each receives 3 and 1 numbers of the other, and of the results 2 and 2.
  sharded.collectives = {
      {.name = "a", .layer = 0, .numbers = {1, 3}},
      {.kind = Collective::Kind::kGather, .name = "b", .layer = -1, .numbers = {2, 2}}};
  return sharded;
}

TEST(Cost, OfATokenIsTheSlowestRanksWorkAndTheCollectives) {
  const std::vector<RankLoad> loads = {
      {.weight_bytes = 100, .token_bytes = 100},
      {.weight_bytes = 200, .token_bytes = 200, .position_bytes = 1}};
  const Cost cost = DecodeCost(TwoRanks(), loads, kSpeed, 100);
  EXPECT_DOUBLE_EQ(cost.memory, 3);
  EXPECT_DOUBLE_EQ(cost.compute, 0);
  EXPECT_DOUBLE_EQ(cost.exchange, 2 * 0.25 + (12 + 8) / 8.0);
}

TEST(Cost, OfAPromptIsBoundByProductsWhereThoseTakeLonger) {
  const std::vector<RankLoad> loads(
      2, {.weight_bytes = 100, .token_bytes = 100, .token_ops = 50, .output_ops = 10});
  const Cost cost = PrefillCost(TwoRanks(), loads, kSpeed, 1000);
  EXPECT_DOUBLE_EQ(cost.memory, 0);
  EXPECT_DOUBLE_EQ(cost.compute, (50.0 * 1000 + 10) / 1000);
  // The results are gathered for one row.
  EXPECT_DOUBLE_EQ(cost.exchange, 2 * 0.25 + (1000 * 12 + 8) / 8.0);
}

TEST(Cost, OfAMixtureCountsTheExpertsThatAreRead) {
  const std::vector<RankLoad> loads = {{.weight_bytes = 800, .token_bytes = 100}};
  ShardedGraph one;
  EXPECT_DOUBLE_EQ(DecodeCost(one, loads, kSpeed, 0).memory, 1);
  EXPECT_DOUBLE_EQ(PrefillCost(one, loads, kSpeed, 4).memory, 4);
  EXPECT_DOUBLE_EQ(PrefillCost(one, loads, kSpeed, 400).memory, 8);
}

TEST(Cost, OfStagesAddsUpForATokenAndOverlapsForAPrompt) {
  ShardedGraph sharded;
  sharded.plan.mesh = {.tensor = 1, .pipeline = 2};
  sharded.collectives = {
      {.kind = Collective::Kind::kSend, .name = "x", .layer = 0, .numbers = {2, 0}}};
  const std::vector<RankLoad> loads = {{.token_ops = 1000}, {.token_ops = 3000}};
  const Cost token = DecodeCost(sharded, loads, kSpeed, 0);
  EXPECT_DOUBLE_EQ(token.compute, 1 + 3);
  EXPECT_DOUBLE_EQ(token.exchange, 0.25 + 1);
  // Two pieces of 5 tokens: 5, then twice the second stage's 15 and what it receives.
  const Cost prompt = PrefillCost(sharded, loads, kSpeed, 10);
  EXPECT_DOUBLE_EQ(prompt.compute, 5 + 2 * 15);
  EXPECT_DOUBLE_EQ(prompt.exchange, 2 * (0.25 + 5));
}

TEST(Cost, OfACollectiveGrowsWithTheLogarithmOfRanks) {
  for (const auto& [ranks, rounds] : {std::pair(2, 1), {3, 2}, {4, 2}, {5, 3}, {64, 6}}) {
    ShardedGraph sharded;
    sharded.plan.mesh = {.tensor = ranks, .pipeline = 1};
    sharded.collectives = {{.name = "a", .layer = 0, .numbers = std::vector<int64_t>(ranks, 2)}};
    const std::vector<RankLoad> loads(static_cast<size_t>(ranks));
    EXPECT_DOUBLE_EQ(DecodeCost(sharded, loads, kSpeed, 0).exchange,
                     rounds * 0.25 + (ranks - 1) * 2 * 4 / 8.0);
  }
}

TEST(Cost, CountsBarriersOfTheSlowestRank) {
  RankSpeed speed = kSpeed;
  speed.barrier_seconds = 0.5;
  const std::vector<RankLoad> loads = {{.token_bytes = 100, .barriers = 4}, {.barriers = 2}};
  EXPECT_DOUBLE_EQ(DecodeCost(TwoRanks(), loads, speed, 0).barriers, 2);
  EXPECT_DOUBLE_EQ(PrefillCost(TwoRanks(), loads, speed, 1).barriers, 2);
}

TEST(Cost, OfWholeExpertsIsThatOfTheRankWithTheMost) {
  const struct {
    std::vector<int64_t> owned;
    int64_t used;
    double most;
  } cases[] = {
      {{8}, 2, 2},
      {{1, 1}, 2, 1},
      {{2, 2}, 1, 1},
      {{2, 2}, 2, 1.0 * 4 / 6 + 2.0 * 2 / 6},        // four pairs apart, two together
      {{3, 1}, 2, 1.0 * 3 / 6 + 2.0 * 3 / 6},        // three with the lone one, three without
      {{2, 2, 2}, 3, 1.0 * 8 / 20 + 2.0 * 12 / 20},  // eight of twenty are one of each
      {{4, 0}, 3, 3},
      {{100, 100}, 100, 50},  // too many to count
  };
  for (const auto& c : cases)
    EXPECT_NEAR(ExpectedMost(c.owned, c.used), c.most, 1e-12) << c.owned.size() << " " << c.used;
  const std::vector<RankLoad> loads = {{.token_bytes = 100, .most_bytes = 50}};
  EXPECT_DOUBLE_EQ(DecodeCost(ShardedGraph{}, loads, kSpeed, 0).memory, 1.5);
}

TEST(Cost, CountsTheTrafficOfAToken) {
  const Traffic traffic = TokenTraffic(TwoRanks());
  EXPECT_EQ(traffic.reduces, 1);
  EXPECT_EQ(traffic.gathers, 1);
  EXPECT_EQ(traffic.sends, 0);
  EXPECT_EQ(traffic.bytes, 12 + 8);
  EXPECT_EQ(traffic.row_bytes, 12);
}

}  // namespace
}  // namespace lockstep
