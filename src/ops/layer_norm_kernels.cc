#include "ops/layer_norm.h"

#include "ops/norm_factor.h"
#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

LayerNormFn LayerNorm;

void LayerNorm(const float* x, const float* w, const float* b, int64_t d, float eps, float* y) {
  float s = RangeScale(MaxAbsBits(x, d));
  F32x16 sum = 0.0f;
  ForEach16(d, [&](int64_t i, int count) { sum = Add(sum, Mul(s, LoadN(x + i, count))); });
  float mean = ReduceAdd(sum) / static_cast<float>(d);
  F32x16 squares = 0.0f;
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 v = KeepN(Sub(Mul(s, LoadN(x + i, count)), mean), count, 0.0f);
    squares = Fma(v, v, squares);
  });
  float f = NormFactor(ReduceAdd(squares), d, s, eps);
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 v = Mul(Sub(Mul(s, LoadN(x + i, count)), mean), f);
    if (w != nullptr) v = Mul(v, LoadN(w + i, count));
    if (b != nullptr) v = Add(v, LoadN(b + i, count));
    StoreN(y + i, v, count);
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
