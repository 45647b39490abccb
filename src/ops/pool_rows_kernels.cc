#include "ops/pool_rows.h"

#include "ops/row_lanes.h"
#include "simd/math.h"

namespace lockstep::LOCKSTEP_ISA {

PoolRowsFn PoolRows;

void PoolRows(const float* v, const float* g, int64_t n, int64_t d, float* y) {
  ForEach16(d, [&](int64_t c, int count) {
    F32x16 m = -__builtin_inff(), sum = 0.0f, total = 0.0f;
    for (int64_t j = 0; j < n; ++j) m = Max(LoadN(g + j * d + c, count), m);
    for (int64_t j = 0; j < n; ++j) {
      const F32x16 e = math::Exp(Sub(LoadN(g + j * d + c, count), m));
      sum = Add(sum, e);
      total = Fma(e, LoadN(v + j * d + c, count), total);
    }
    StoreN(y + c, Div(total, sum), count);
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
