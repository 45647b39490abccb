#include "ops/activation.h"

#include "ops/row_lanes.h"
#include "simd/math.h"

namespace lockstep::LOCKSTEP_ISA {

ActivateFn Activate;
ActivateGatedFn ActivateGated;

namespace {

// Calls walk(f) with f the activation on lanes: chosen once a row, inlined into the row's loop.
template <typename Walk>
LOCKSTEP_INLINE void With(Activation activation, Walk walk) {
  switch (activation) {
#define LOCKSTEP_CASE(Name, spelling) \
  case Activation::k##Name:           \
    return walk([](F32x16 v) { return math::Name(v); });
    LOCKSTEP_FOR_EACH_ACTIVATION(LOCKSTEP_CASE)
#undef LOCKSTEP_CASE
  }
}

}  // namespace

void Activate(Activation activation, const float* x, int64_t n, float* y) {
  With(activation, [&](auto function) {
    ForEach16(n,
              [&](int64_t i, int count) { StoreN(y + i, function(LoadN(x + i, count)), count); });
  });
}

void ActivateGated(const Gating& gating, const float* gate, const float* up, int64_t n, float* y) {
  F32x16 gate_limit = gating.gate_limit, activated_limit = gating.activated_limit;
  F32x16 up_limit = gating.up_limit, up_offset = gating.up_offset;
  With(gating.activation, [&](auto function) {
    ForEach16(n, [&](int64_t i, int count) {
      F32x16 g = function(Min(gate_limit, LoadN(gate + i, count)));
      F32x16 u = Max(Neg(up_limit), Min(up_limit, LoadN(up + i, count)));
      StoreN(y + i, Mul(Min(activated_limit, g), Add(u, up_offset)), count);
    });
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
