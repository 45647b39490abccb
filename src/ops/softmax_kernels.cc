#include "ops/softmax.h"

#include "ops/row_lanes.h"
#include "simd/math.h"

namespace lockstep::LOCKSTEP_ISA {

SoftmaxFn Softmax;

void Softmax(const float* x, int64_t d, float* y) {
  F32x16 minus_inf = -__builtin_inff();
  F32x16 most = minus_inf;
  ForEach16(d, [&](int64_t i, int count) {
    most = Max(KeepN(LoadN(x + i, count), count, minus_inf), most);
  });
  F32x16 top = ReduceMax(most);
  F32x16 sum = 0.0f;
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 e = KeepN(math::Exp(Sub(LoadN(x + i, count), top)), count, 0.0f);
    StoreN(y + i, e, count);
    sum = Add(sum, e);
  });
  F32x16 total = ReduceAdd(sum);
  ForEach16(d,
            [&](int64_t i, int count) { StoreN(y + i, Div(LoadN(y + i, count), total), count); });
}

}  // namespace lockstep::LOCKSTEP_ISA
