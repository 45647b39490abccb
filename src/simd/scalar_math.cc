#include "simd/scalar_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep::f64 {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2 and pi/2 in parts of falling size; the leading ones are short, so that their products with whole numbers are
// exact or lose nothing inside an fma.
constexpr double kLn2[2] = {0x1.62e42fefa0000p-1, 0x1.cf79abc9e3b3ap-40};
constexpr double kHalfPi[3] = {0x1.921fb54000000p+0, 0x1.10b4611800000p-30, 0x1.313198a2e0370p-61};
constexpr double kInvLn2 = 0x1.71547652b82fep+0;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// 1 / k!, the Taylor coefficients of exp, sin and cos; every factorial here is a double exactly.
constexpr auto kInvFactorial = [] {
  std::array<double, 18> table{};
  double factorial = 1;
  for (size_t k = 0; k < table.size(); ++k) {
    if (k > 0) factorial *= static_cast<double>(k);
    table[k] = 1 / factorial;
  }
  return table;
}();

// A number as the sum of two, the second below half an ulp of the first.
struct Double2 {
  double hi, lo;
};

// a + b exactly, for |a| >= |b| or a == 0.
Double2 FastTwoSum(double a, double b) {
  double sum = a + b;
  return {sum, b - (sum - a)};
}

// To the nearest whole number for |x| < 2^51.
double Round(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

// 2^n for -1022 <= n <= 1023.
double PowerOfTwo(int64_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// e^(x.hi + x.lo).
double ExpSum(Double2 x) {
  if (x.hi > 710) return kInf;
  if (x.hi < -746) return 0;
  double n = Round(x.hi * kInvLn2);
  double r = std::fma(-n, kLn2[0], x.hi) + std::fma(-n, kLn2[1], x.lo);
  double p = kInvFactorial[14];
  for (int k = 13; k >= 2; --k) p = std::fma(p, r, kInvFactorial[k]);
  double e = 1 + std::fma(r * r, p, r);
  // Two factors: the first keeps e normal, so that the second rounds a denormal result once.
  int64_t whole = static_cast<int64_t>(n);
  int64_t half = whole / 2;
  return e * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

// log x to about 2^-60 of its value, for finite x > 0: with x = 2^e m and sqrt(1/2) <= m < sqrt(2), log m is
// 2 atanh(s) with s = (m - 1) / (m + 1), where only s itself needs more than double.
Double2 LogSum(double x) {
  int64_t exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDu;
  int64_t shift = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  exponent += shift;
  double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(shift) << 52));

  double f = m - 1;
  Double2 d = FastTwoSum(2, f);
  double s = f / d.hi;
  double s_lo = (std::fma(-s, d.hi, f) - s * d.lo) / d.hi;
  double z = s * s;
  double p = 0;
  for (int k = 25; k >= 3; k -= 2) p = std::fma(p, z, 2.0 / k);
  Double2 log_m = FastTwoSum(2 * s, std::fma(s * z, p, 2 * s_lo));
  double e = static_cast<double>(exponent);
  Double2 sum = FastTwoSum(e * kLn2[0], log_m.hi);
  return FastTwoSum(sum.hi, sum.lo + std::fma(e, kLn2[1], log_m.lo));
}

// x = quadrant pi/2 + hi + lo.
struct Angle {
  double hi, lo;
  uint64_t quadrant;
};

Angle Reduce(double x) {
  double n = Round(x * kTwoOverPi);
  double a = std::fma(-n, kHalfPi[0], x);
  double b = std::fma(-n, kHalfPi[1], a);
  double rest = std::fma(-n, kHalfPi[2], std::fma(-n, kHalfPi[1], a - b));
  double hi = b + rest;
  return {hi, (b - hi) + rest, static_cast<uint64_t>(static_cast<int64_t>(n))};
}

double SinNear0(Angle r) {
  double z = r.hi * r.hi;
  double p = kInvFactorial[17];
  for (int k = 15; k >= 3; k -= 2) p = std::fma(-p, z, kInvFactorial[k]);
  return r.hi + (r.lo * std::fma(z, -0.5, 1) - r.hi * z * p);
}

double CosNear0(Angle r) {
  double z = r.hi * r.hi;
  double p = kInvFactorial[16];
  for (int k = 14; k >= 4; k -= 2) p = std::fma(-p, z, kInvFactorial[k]);
  double half = 0.5 * z;
  double w = 1 - half;
  return w + ((1 - w - half) + (z * z * p - r.hi * r.lo));
}

// sin(x + turns pi/2).
double SinTurned(double x, uint64_t turns) {
  if (!(std::fabs(x) <= 0x1p30)) return kNan;
  Angle r = Reduce(x);
  uint64_t quadrant = (r.quadrant + turns) % 4;
  double value = quadrant % 2 == 0 ? SinNear0(r) : CosNear0(r);
  return quadrant < 2 ? value : -value;
}

}  // namespace

double Exp(double x) { return std::isnan(x) ? x : ExpSum({x, 0}); }

double Log(double x) {
  if (std::isnan(x) || x == kInf) return x;
  if (x <= 0) return x == 0 ? -kInf : kNan;
  return LogSum(x).hi;
}

double Pow(double base, double y) {
  if (y == 0 || base == 1) return 1;
  if (std::isnan(base) || std::isnan(y) || base < 0) return kNan;
  if (base == 0 || base == kInf || std::isinf(y)) {
    bool grows = (base > 1) == (y > 0);
    return grows ? kInf : 0;
  }
  Double2 log = LogSum(base);
  double hi = y * log.hi;
  double lo = std::fma(y, log.hi, -hi) + y * log.lo;
  return std::isinf(hi) ? ExpSum({hi, 0}) : ExpSum({hi, lo});
}

double Sin(double x) { return x == 0 ? x : SinTurned(x, 0); }
double Cos(double x) { return SinTurned(x, 1); }

}  // namespace lockstep::f64
