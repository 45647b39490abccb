#include "ops/weighted_rows.h"

#include <cmath>

namespace lockstep {

void MixRowsReference(const WeightedRows& rows, int64_t d, float* y) {
  for (int64_t i = 0; i < d; ++i) {
    float sum = rows.first == nullptr ? 0 : rows.first_weight * rows.first[i];
    for (int64_t j = 0; j < rows.n; ++j)
      sum = std::fma(rows.w[j * rows.w_stride], rows.x[j * rows.x_stride + i], sum);
    y[i] = sum;
  }
}

}  // namespace lockstep
