// Walking a row 16 lanes at a time, for kernel files.
#pragma once

#include <cstdint>

#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {

// Calls f(i, count) for i = 0, 16, 32 ... < n; count is 16, and what is left for the last. Inlined twice, so that in
// the full part LoadN and StoreN are plain.
template <typename F>
LOCKSTEP_INLINE void ForEach16(int64_t n, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, static_cast<int>(n - i));
}

LOCKSTEP_INLINE F32x16 LoadN(const float* p, int count) {
  return count == 16 ? Load(p) : LoadPartial(p, count);
}
LOCKSTEP_INLINE void StoreN(float* p, F32x16 v, int count) {
  if (count == 16) {
    Store(p, v);
  } else {
    StorePartial(p, v, count);
  }
}
// v in the first `count` lanes, `other` in the rest.
LOCKSTEP_INLINE F32x16 KeepN(F32x16 v, int count, F32x16 other) {
  return count == 16 ? v : Select(FirstLanes(count), v, other);
}

// The largest of the bits of |x[i]|, 0 for an empty row: ordered as the magnitudes are, NaN above all.
LOCKSTEP_INLINE int32_t MaxAbsBits(const float* x, int64_t n) {
  I32x16 most = 0;
  ForEach16(n, [&](int64_t i, int count) { most = Max(most, BitsOf(Abs(LoadN(x + i, count)))); });
  return ReduceMax(most);
}

}  // namespace lockstep::LOCKSTEP_ISA
