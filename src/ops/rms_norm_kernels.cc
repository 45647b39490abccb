#include "ops/norm_factor.h"
#include "ops/rms_norm.h"
#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

RmsNormFn RmsNorm;

void RmsNorm(const float* x, const float* w, int64_t d, float eps, float* y) {
  float s = RangeScale(MaxAbsBits(x, d));
  F32x16 squares = 0.0f;
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 v = Mul(s, LoadN(x + i, count));
    squares = Fma(v, v, squares);
  });
  float f = NormFactor(ReduceAdd(squares), d, s, eps);
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 v = Mul(Mul(s, LoadN(x + i, count)), f);
    if (w != nullptr) v = Mul(v, LoadN(w + i, count));
    StoreN(y + i, v, count);
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
