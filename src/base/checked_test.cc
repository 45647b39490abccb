#include "base/checked.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace lockstep {
namespace {

constexpr uint64_t kMax = UINT64_MAX;

TEST(Size, ComputesWhatFits) {
  EXPECT_EQ((Size(6) * 7 + 8 - 50).get(), 0u);
  EXPECT_EQ((Size(kMax) + 0).get(), kMax);
  EXPECT_EQ((Size(kMax) * 1).get(), kMax);
  EXPECT_EQ((Size(uint64_t{1} << 32) * ((uint64_t{1} << 32) - 1)).get(), 0xFFFFFFFF00000000u);
}

TEST(Size, IsInvalidWhereTheResultDoesNotFit) {
  for (Size size :
       {Size(kMax) + 1, Size(1) + kMax, Size(0) - 1, Size(kMax) * 2,
        Size(uint64_t{1} << 32) * (uint64_t{1} << 32), Size(kMax).AlignUp(2), Size::Invalid()}) {
    EXPECT_FALSE(size.valid());
    EXPECT_EQ(size.get(), std::nullopt);
    EXPECT_FALSE(size.fits(kMax));
    EXPECT_EQ(size.value_or(17), 17u);
  }
}

TEST(Size, StaysInvalidWhateverFollows) {
  Size bad = Size(kMax) + 1;
  for (Size size :
       {bad + 0, Size(0) + bad, bad - 0, Size(5) - bad, bad * 0, Size(0) * bad, bad.AlignUp(64)}) {
    EXPECT_FALSE(size.valid());
  }
}

TEST(Size, FitsComparesWithALimit) {
  EXPECT_TRUE(Size(10).fits(10));
  EXPECT_FALSE(Size(11).fits(10));
}

TEST(Size, AlignsUpToMultiples) {
  struct {
    uint64_t value, unit, aligned;
  } cases[] = {{0, 32, 0}, {1, 32, 32}, {32, 32, 32}, {33, 32, 64}, {7, 1, 7}, {kMax, 1, kMax}};
  for (const auto& c : cases) EXPECT_EQ(Size(c.value).AlignUp(c.unit).get(), c.aligned) << c.value;
}

TEST(Rounding, DividesAndRoundsUp) {
  struct {
    int64_t value, unit, quotient, rounded;
  } cases[] = {{0, 8, 0, 0}, {1, 8, 1, 8}, {8, 8, 1, 8}, {9, 8, 2, 16}, {9, 1, 9, 9}};
  for (const auto& c : cases) {
    EXPECT_EQ(CeilDiv(c.value, c.unit), c.quotient);
    EXPECT_EQ(RoundUp(c.value, c.unit), c.rounded);
  }
}

}  // namespace
}  // namespace lockstep
