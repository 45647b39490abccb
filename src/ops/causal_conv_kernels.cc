#include "ops/causal_conv.h"

#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

CausalConvFn CausalConv;

void CausalConv(const float* const* x, const float* w, const float* bias, int64_t taps, int64_t n,
                float* y) {
  ForEach16(n, [&](int64_t c, int count) {
    F32x16 sum = bias != nullptr ? LoadN(bias + c, count) : Zero();
    for (int64_t j = 0; j < taps; ++j)
      sum = Fma(LoadN(x[j] + c, count), LoadN(w + j * n + c, count), sum);
    StoreN(y + c, sum, count);
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
