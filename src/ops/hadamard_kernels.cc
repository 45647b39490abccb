#include <algorithm>
#include <cmath>

#include "ops/hadamard.h"
#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

HadamardFn Hadamard;

namespace {

// One stage on 2 * kHalf numbers that stand together, kHalf below a register's lanes.
template <int kHalf>
LOCKSTEP_INLINE void Pairs(float* y, int64_t n) {
  for (int64_t at = 0; at < n; at += 2 * kHalf) {
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      const float a = y[at + i], b = y[at + kHalf + i];
      y[at + i] = a + b;
      y[at + kHalf + i] = a - b;
    }
  }
}

}  // namespace

void Hadamard(const float* x, int64_t n, int64_t block, float* y) {
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
  ForEach16(n,
            [&](int64_t i, int count) { StoreN(y + i, Mul(LoadN(x + i, count), scale), count); });
  if (block >= 2) Pairs<1>(y, n);
  if (block >= 4) Pairs<2>(y, n);
  if (block >= 8) Pairs<4>(y, n);
  if (block >= 16) Pairs<8>(y, n);
  for (int64_t half = 16; half < block; half *= 2) {
    for (int64_t at = 0; at < n; at += 2 * half) {
#pragma GCC unroll 2
      for (int64_t i = at; i < at + half; i += 16) {
        const F32x16 a = Load(y + i), b = Load(y + i + half);
        Store(y + i, Add(a, b));
        Store(y + i + half, Sub(a, b));
      }
    }
  }
}

}  // namespace lockstep::LOCKSTEP_ISA
