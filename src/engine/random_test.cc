#include "engine/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace lockstep {
namespace {

using Block = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

TEST(Random, PhiloxGivesThePublishedKnownAnswers) {
  // Random123 1.14, tests/kat_vectors, rows "philox4x32 10".
  const struct {
    Block counter;
    Key key;
    Block expected;
  } kCases[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& c : kCases) EXPECT_EQ(Philox4x32(c.counter, c.key), c.expected);
}

TEST(Random, UniformDrawUsesTheFirstTwoWordsOfTheBlock) {
  // From the first known answer: (0xe169c58d6627e8d5 >> 11) * 2^-53.
  EXPECT_EQ(UniformDraw(0, 0, 0), static_cast<double>(0xe169c58d6627e8d5 >> 11) * 0x1p-53);
}

TEST(Random, EveryBitOfSeedPositionAndStreamMatters) {
  std::set<double> seen = {UniformDraw(0, 0, 0)};
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(UniformDraw(uint64_t{1} << bit, 0, 0));
    seen.insert(UniformDraw(0, static_cast<int64_t>(uint64_t{1} << bit), 0));
  }
  for (int bit = 0; bit < 32; ++bit) seen.insert(UniformDraw(0, 0, uint32_t{1} << bit));
  EXPECT_EQ(seen.size(), 1u + 64 + 64 + 32);
}

TEST(Random, DrawsOfNeighbouringPositionsAreUniformAndUncorrelated) {
  constexpr int kDraws = 20000, kBins = 20;
  int bins[kBins] = {};
  double products = 0, previous = UniformDraw(7, -1, 0);
  for (int i = 0; i < kDraws; ++i) {
    double u = UniformDraw(7, i, 0);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++bins[static_cast<int>(u * kBins)];
    products += (u - 0.5) * (previous - 0.5);
    previous = u;
  }
  double chi2 = 0, expected = double{kDraws} / kBins;
  for (int count : bins) chi2 += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi2, 43.8);  // 0.1 % point for 19 degrees of freedom
  // 12 * mean of the products has deviation 1 / sqrt(draws).
  EXPECT_LT(std::fabs(12 * products / kDraws), 4 / std::sqrt(double{kDraws}));
}

TEST(Random, SystemSeedsDiffer) { EXPECT_NE(SystemSeed().value(), SystemSeed().value()); }

}  // namespace
}  // namespace lockstep
