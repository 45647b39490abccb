#include "ops/dot_gate.h"
#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

DotRowsFn DotRows;

float DotRows(const float* a, const float* b, int64_t n) {
  F32x16 sum = 0.0f;
  ForEach16(
      n, [&](int64_t i, int count) { sum = Fma(LoadN(a + i, count), LoadN(b + i, count), sum); });
  return ReduceAdd(sum);
}

}  // namespace lockstep::LOCKSTEP_ISA
