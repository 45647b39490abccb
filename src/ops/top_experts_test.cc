#include "ops/top_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "ops/expert_weights.h"

namespace lockstep {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();

std::vector<float> Chosen(const TopExpertsSettings& settings, const std::vector<float>& scores,
                          const std::vector<float>& bias = {}) {
  std::vector<float> ids(static_cast<size_t>(settings.used), -1);
  TopExperts(settings, scores.data(), bias.empty() ? nullptr : bias.data(), std::ssize(scores),
             ids.data());
  return ids;
}

TEST(TopExperts, ComeByDescendingScoreAndTiesByAscendingExpert) {
  using Ids = std::vector<float>;
  EXPECT_EQ(Chosen({.used = 3}, {1, 5, 3, 5, 4}), (Ids{1, 3, 4}));
  EXPECT_EQ(Chosen({.used = 4}, {0, -0.0f, 0, 0, 0}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(Chosen({.used = 2}, {2, 1, 2, 2}), (Ids{0, 2}));
  EXPECT_EQ(Chosen({.used = 2}, {1, 2, 3}, {5, 0, 0}), (Ids{0, 2}));
  EXPECT_EQ(Chosen({.used = 3}, {kNan, kNan, 1, -kInf}), (Ids{2, 0, 1}));
  EXPECT_EQ(Chosen({.used = 1}, {kNan}), (Ids{0}));
}

TEST(TopExperts, AreThoseOfAStableSort) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> scores(1 + random() % 130), order(scores.size());
    for (float& score : scores) score = static_cast<float>(random() % 40);
    std::iota(order.begin(), order.end(), 0.0f);
    std::ranges::stable_sort(order, std::greater(),
                             [&](float i) { return scores[static_cast<size_t>(i)]; });
    const auto used = static_cast<int64_t>(1 + random() % std::min<size_t>(scores.size(), 64));
    order.resize(static_cast<size_t>(used));
    EXPECT_EQ(Chosen({.used = used}, scores), order);
  }
}

TEST(TopExperts, ComeFromTheBestGroupsOnly) {
  // Groups {9 0} {6 5} {7 1} {5 5}: by the best 0 and 2 lead, by the best two 1 and then, of equals, the lower one.
  const std::vector<float> scores = {9, 0, 6, 5, 7, 1, 5, 5};
  using Ids = std::vector<float>;
  EXPECT_EQ(Chosen({.used = 3, .groups = 4, .used_groups = 2}, scores), (Ids{0, 4, 5}));
  EXPECT_EQ(Chosen({.used = 3, .groups = 4, .used_groups = 2, .groups_by_best_two = true}, scores),
            (Ids{2, 3, 6}));
  EXPECT_EQ(Chosen({.used = 2, .groups = 8, .used_groups = 3, .groups_by_best_two = true}, scores),
            (Ids{0, 4}));
  // The bias takes part in both choices.
  EXPECT_EQ(Chosen({.used = 1, .groups = 4, .used_groups = 1}, scores, {0, 0, 0, 0, 0, 9, 0, 0}),
            (Ids{5}));
}

TEST(TopExperts, SayWhetherAllScoresAreFinite) {
  float ids[1];
  for (float odd : {1.0f, kNan, kInf, -kInf}) {
    const float scores[] = {1, 2, odd, 0};
    EXPECT_EQ(TopExperts({.used = 1}, scores, nullptr, 4, ids), std::isfinite(odd)) << odd;
  }
}

TEST(ExpertWeights, AreGatheredNormalisedAndScaled) {
  using Normalize = ExpertWeightsSettings::Normalize;
  const std::vector<float> scores = {0.5f, 0.125f, 0.25f, 0}, scales = {2, 4, 8, 16};
  const std::vector<float> ids = {2, 0};
  struct Case {
    ExpertWeightsSettings settings;
    const float* scales;
    std::vector<float> expected;
  };
  const Case cases[] = {
      {{}, nullptr, {0.25f, 0.5f}},
      {{.scale = 2}, nullptr, {0.5f, 1}},
      {{}, scales.data(), {2, 1}},
      {{.normalize = Normalize::kSum}, nullptr, {0.25f / 0.75f, 0.5f / 0.75f}},
      {{.normalize = Normalize::kSum, .sum_offset = 0.25f, .scale = 4}, nullptr, {1, 2}},
      {{.normalize = Normalize::kSum, .sum_floor = 1}, nullptr, {0.25f, 0.5f}},
  };
  for (const Case& c : cases) {
    std::vector<float> weights(2);
    ExpertWeights(c.settings, scores.data(), 4, ids.data(), 2, c.scales, weights.data());
    EXPECT_EQ(weights, c.expected);
  }
  std::vector<float> equal(2);
  const float two[] = {3, 3}, both[] = {0, 1};
  ExpertWeights({.normalize = Normalize::kSoftmax}, two, 2, both, 2, nullptr, equal.data());
  EXPECT_EQ(equal, (std::vector<float>{0.5f, 0.5f}));
}

// Ids may come from a table of a file.
TEST(ExpertWeights, AreZeroForIdsThatAreNoExpert) {
  const std::vector<float> scores = {0.5f, 0.25f};
  const std::vector<float> ids = {-1, 2, kNan, kInf, 1e30f, 1};
  std::vector<float> weights(6, 7);
  ExpertWeights({}, scores.data(), 2, ids.data(), 6, scores.data(), weights.data());
  EXPECT_EQ(weights, (std::vector<float>{0, 0, 0, 0, 0, 0.0625f}));
}

}  // namespace
}  // namespace lockstep
