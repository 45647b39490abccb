#include "ops/rope.h"

#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

RopeHalvesFn RopeHalves;
RopePairsFn RopePairs;

namespace {

LOCKSTEP_INLINE void Rotate(F32x16* first, F32x16* second, F32x16 cos, F32x16 sin) {
  F32x16 a = *first, b = *second;
  *first = Fnma(b, sin, Mul(a, cos));
  *second = Fma(a, sin, Mul(b, cos));
}

}  // namespace

void RopeHalves(float* x, const float* cos, const float* sin, int64_t n_rot) {
  int64_t half = n_rot / 2;
  ForEach16(half, [&](int64_t j, int count) {
    F32x16 a = LoadN(x + j, count), b = LoadN(x + half + j, count);
    Rotate(&a, &b, LoadN(cos + j, count), LoadN(sin + j, count));
    StoreN(x + j, a, count);
    StoreN(x + half + j, b, count);
  });
}

void RopePairs(float* x, const float* cos, const float* sin, int64_t n_rot) {
  ForEach16(n_rot / 2, [&](int64_t j, int count) {
    float* pairs = x + 2 * j;
    float buffer[32] = {};
    if (count < 16) {
      __builtin_memcpy(buffer, pairs, sizeof(float) * 2 * static_cast<size_t>(count));
      pairs = buffer;
    }
    F32x16 a, b;
    LoadInterleaved(pairs, &a, &b);
    Rotate(&a, &b, LoadN(cos + j, count), LoadN(sin + j, count));
    StoreInterleaved(pairs, a, b);
    if (count < 16) {
      __builtin_memcpy(x + 2 * j, buffer, sizeof(float) * 2 * static_cast<size_t>(count));
    }
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
