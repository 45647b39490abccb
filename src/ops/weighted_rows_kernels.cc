#include "ops/row_lanes.h"
#include "ops/weighted_rows.h"

namespace lockstep::LOCKSTEP_ISA {

MixRowsFn MixRows;

void MixRows(const WeightedRows& rows, int64_t d, float* y) {
  ForEach16(d, [&](int64_t i, int count) {
    F32x16 sum = 0.0f;
    if (rows.first != nullptr) sum = Mul(rows.first_weight, LoadN(rows.first + i, count));
    for (int64_t j = 0; j < rows.n; ++j) {
      sum = Fma(rows.w[j * rows.w_stride], LoadN(rows.x + j * rows.x_stride + i, count), sum);
    }
    StoreN(y + i, sum, count);
  });
}

}  // namespace lockstep::LOCKSTEP_ISA
