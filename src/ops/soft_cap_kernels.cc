#include "ops/soft_cap.h"

#include "ops/row_lanes.h"
#include "simd/math.h"

namespace lockstep::LOCKSTEP_ISA {

SoftCapFn SoftCap;

void SoftCap(const float* x, int64_t n, float cap, float* y) {
  ForEach16(n, [&](int64_t i, int count) {
    StoreN(y + i, Mul(cap, math::Tanh(Div(LoadN(x + i, count), cap))), count);
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
