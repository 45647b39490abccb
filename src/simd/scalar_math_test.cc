#include "simd/scalar_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Ulps(double found, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return static_cast<double>(std::fabs(found - exact) /
                             std::ldexp(1.0L, std::max(exponent - 53, -1074)));
}

TEST(ScalarMath, ExpLogAndPowAreWithinOneUlp) {
  std::mt19937_64 generator(3);
  auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  for (int i = 0; i < 200000; ++i) {
    double x = uniform(-745, 709.7);
    ASSERT_LE(Ulps(f64::Exp(x), std::exp(static_cast<long double>(x))), 1) << x;
    double y = i % 2 ? std::exp(uniform(-740, 709)) : uniform(0.5, 2);
    ASSERT_LE(Ulps(f64::Log(y), std::log(static_cast<long double>(y))), 1) << y;
    double base = uniform(1, 1e7), power = uniform(-1, 1);
    ASSERT_LE(Ulps(f64::Pow(base, power), std::pow(static_cast<long double>(base), power)), 1)
        << base << ' ' << power;
  }
}

TEST(ScalarMath, SinAndCosHoldTheirBoundToABillionRadians) {
  std::mt19937_64 generator(4);
  for (int i = 0; i < 400000; ++i) {
    double limit = std::ldexp(1.0, static_cast<int>(generator() % 50) - 20 + (i % 2));
    limit = std::min(limit, 0x1p30);
    double x = std::uniform_real_distribution<double>(-limit, limit)(generator);
    if (i % 4 == 0) x = std::round(x) * (M_PI / 2);
    if (std::fabs(x) > 0x1p30) continue;
    long double sine = std::sin(static_cast<long double>(x));
    long double cosine = std::cos(static_cast<long double>(x));
    ASSERT_LE(std::fabs(f64::Sin(x) - sine), 0x1p-53L + std::fabs(sine) * 0x1p-52L) << x;
    ASSERT_LE(std::fabs(f64::Cos(x) - cosine), 0x1p-53L + std::fabs(cosine) * 0x1p-52L) << x;
    if (std::fabs(x) < 0.7) {
      ASSERT_LE(Ulps(f64::Sin(x), sine), 1) << x;
    }
  }
}

// As Math.KeepsItsBits of simd_test.cc.
TEST(ScalarMath, KeepsItsBits) {
  uint64_t hash = 0xCBF29CE484222325u;
  auto mix = [&](double value) {
    hash ^= std::bit_cast<uint64_t>(value);
    hash *= 0x100000001B3u;
  };
  for (int i = 1; i <= 20000; ++i) {
    double x = i * 0x1.3p-4;
    mix(f64::Exp(700 - x));
    mix(f64::Log(x));
    mix(f64::Pow(x, i * 0x1p-14));
    mix(f64::Sin(x * 100));
    mix(f64::Cos(x * 100));
  }
  EXPECT_EQ(hash, 0xFE14EB9BDF4472D0u);
}

TEST(ScalarMath, HasTheRightLimits) {
  EXPECT_EQ(f64::Exp(0), 1);
  EXPECT_EQ(f64::Exp(-kInf), 0);
  EXPECT_EQ(f64::Exp(kInf), kInf);
  EXPECT_EQ(f64::Exp(709.79), kInf);
  EXPECT_EQ(f64::Exp(-745.0), 0x1p-1074);
  EXPECT_EQ(f64::Exp(-1e300), 0);
  EXPECT_EQ(f64::Log(1), 0);
  EXPECT_EQ(f64::Log(0), -kInf);
  EXPECT_EQ(f64::Log(kInf), kInf);
  EXPECT_EQ(f64::Log(0x1p-1074), -744.4400719213812);
  EXPECT_EQ(f64::Pow(0, 2), 0);
  EXPECT_EQ(f64::Pow(0, -2), kInf);
  EXPECT_EQ(f64::Pow(0, 0), 1);
  EXPECT_EQ(f64::Pow(10000, 0), 1);
  EXPECT_EQ(f64::Pow(kNan, 0), 1);
  EXPECT_EQ(f64::Pow(10, 400), kInf);
  EXPECT_EQ(f64::Pow(10, -400), 0);
  EXPECT_EQ(f64::Pow(kInf, -1), 0);
  EXPECT_EQ(f64::Pow(0.5, kInf), 0);
  EXPECT_EQ(f64::Pow(2, 10), 1024);
  EXPECT_EQ(f64::Sin(0), 0);
  EXPECT_TRUE(std::signbit(f64::Sin(-0.0)));
  EXPECT_EQ(f64::Cos(0), 1);
  for (double (*f)(double) : {f64::Exp, f64::Log, f64::Sin, f64::Cos})
    EXPECT_TRUE(std::isnan(f(kNan)));
  for (double x : {kInf, -kInf, 1e300}) {
    EXPECT_TRUE(std::isnan(f64::Sin(x)));
    EXPECT_TRUE(std::isnan(f64::Cos(x)));
  }
  EXPECT_TRUE(std::isnan(f64::Log(-1)));
  EXPECT_TRUE(std::isnan(f64::Pow(-1, 0.5)));
  EXPECT_TRUE(std::isnan(f64::Pow(kNan, 1)));
}

}  // namespace
}  // namespace lockstep
