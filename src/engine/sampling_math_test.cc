#include "engine/sampling_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep::sampling {
namespace {

constexpr double kUnit = 0x1p-53;

// |found - exact| in units of 2^-53 of the exact value.
double RelativeError(double found, long double exact) {
  return static_cast<double>(std::fabs((found - exact) / exact)) / kUnit;
}

TEST(SamplingMath, ExpAndLogKeepTheirErrorBounds) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-708, 709), small(-1, 1);
  for (int i = 0; i < 200000; ++i) {
    for (double x : {exponent(random), small(random), small(random) * 1e-5}) {
      ASSERT_LT(RelativeError(Exp(x), std::exp(static_cast<long double>(x))), 4) << x;
      double positive = Exp(x);
      if (positive == 1) continue;
      ASSERT_LT(RelativeError(Log(positive), std::log(static_cast<long double>(positive))), 4)
          << positive;
    }
  }
}

TEST(SamplingMath, EndsOfTheRangeAreExact) {
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(-1e308), 0);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(710), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
  EXPECT_GT(Exp(-745), 0);  // the smallest denormal
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(0), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1)));
  EXPECT_TRUE(std::isnan(Log(kNan)));
  EXPECT_NEAR(Log(5e-324), -744.4400719213812, 1e-12);
  EXPECT_NEAR(Log(1.7976931348623157e308), 709.782712893384, 1e-12);
}

TEST(SamplingMath, PowersAgreeWithTheLibraryToTheirBound) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> base(0, 10), exponent(-20, 20);
  for (int i = 0; i < 10000; ++i) {
    double x = base(random), y = exponent(random);
    double bound = 4 + 4 * std::fabs(y * std::log(x));
    ASSERT_LT(RelativeError(Pow(x, y), std::pow(static_cast<long double>(x), y)), bound)
        << x << " " << y;
  }
  EXPECT_EQ(Pow(0, 0), 1);
  EXPECT_EQ(Pow(0, 2), 0);
  EXPECT_EQ(IntPow(1.75, 0), 1);
  EXPECT_EQ(IntPow(2, 100), 0x1p100);
  EXPECT_EQ(IntPow(2, uint64_t{1} << 40), kInfinity);
  EXPECT_EQ(IntPow(0, 3), 0);
}

}  // namespace
}  // namespace lockstep::sampling
