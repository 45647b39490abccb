#include "ops/l2_norm.h"

#include "ops/norm_factor.h"
#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

L2NormFn L2Norm;

void L2Norm(const float* x, int64_t d, float eps, float* y) {
  float s = RangeScale(MaxAbsBits(x, d));
  F32x16 squares = 0.0f;
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 v = Mul(s, LoadN(x + i, count));
    squares = Fma(v, v, squares);
  });
  float f = NormFactor(ReduceAdd(squares), 1, s, eps);
  ForEach16(
      d, [&](int64_t i, int count) { StoreN(y + i, Mul(Mul(s, LoadN(x + i, count)), f), count); });
}

}  // namespace lockstep::LOCKSTEP_ISA
