// exp, log and pow for the samplers: polynomials in double with plain multiplications and
// additions, so that every machine computes the same bits (a C library's functions differ between
// versions and processors).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace lockstep::sampling {

inline constexpr double kLn2 = 0.6931471805599453;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

namespace internal {
// ln 2 in two parts; the first has 20 trailing zero bits, so that its product with an exponent is
// exact.
inline constexpr double kLn2High = 0x1.62e42fee00000p-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
// Adding and subtracting it rounds a double of magnitude below 2^51 to the nearest integer.
inline constexpr double kRound = 0x1.8p52;
inline double PowerOfTwo(int64_t n) {  // -1022 <= n <= 1023
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}
}  // namespace internal

// e^x, relative error below 4 * 2^-53 where the result is a normal number; +Inf above its range, 0
// below.
inline double Exp(double x) {
  if (!(x <= 709.78)) return x > 0 ? kInfinity : x;
  if (x < -745.2) return 0;
  double n = (x * 1.4426950408889634 + internal::kRound) - internal::kRound;
  double r = (x - n * internal::kLn2High) - n * internal::kLn2Low;
  // The Taylor series to r^13: |r| <= 0.3466, so the rest is below 5e-18.
  constexpr double kTerms[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
  double p = 0;
  for (double term : kTerms) p = p * r + term;
  double result = 1 + (r + r * r * p);
  // Two factors, as 2^n itself may be no normal number.
  int64_t half = static_cast<int64_t>(n) / 2;
  return result * internal::PowerOfTwo(half) * internal::PowerOfTwo(static_cast<int64_t>(n) - half);
}

// The natural logarithm, relative error below 4 * 2^-53; -Inf at 0, NaN below.
inline double Log(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : std::numeric_limits<double>::quiet_NaN();
  if (x == kInfinity) return x;
  double scale = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    scale = -54;
  }
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  uint64_t bits = std::bit_cast<uint64_t>(x) - kSqrtHalf;
  double e = static_cast<double>(static_cast<int64_t>(bits) >> 52) + scale;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) + kSqrtHalf);
  // log m = 2 atanh s, s = (m - 1) / (m + 1), |s| < 0.1716: the rest of the series is below 1e-18.
  double s = (m - 1) / (m + 1);
  double s2 = s * s;
  double p = 0;
  for (int k = 23; k >= 3; k -= 2) p = p * s2 + 1.0 / k;
  double log_m = 2 * s + 2 * s * s2 * p;
  return e * internal::kLn2High + (log_m + e * internal::kLn2Low);
}

// x^y for x >= 0, with x^0 = 1; relative error about |y log x| * 2^-52.
inline double Pow(double x, double y) {
  if (y == 0) return 1;
  return Exp(y * Log(x));
}

// base^n for n >= 0 by repeated squaring: correct to n * 2^-53, +Inf where it overflows.
inline double IntPow(double base, uint64_t n) {
  double result = 1;
  for (; n != 0; n >>= 1, base *= base) {
    if (n & 1) result *= base;
  }
  return result;
}

}  // namespace lockstep::sampling
