#include "ops/pool_rows.h"

#include <cmath>
#include <limits>

#include "simd/scalar.h"

namespace lockstep {

void PoolRowsReference(const float* v, const float* g, int64_t n, int64_t d, float* y) {
  for (int64_t c = 0; c < d; ++c) {
    float m = -std::numeric_limits<float>::infinity(), sum = 0, total = 0;
    for (int64_t j = 0; j < n; ++j) m = g[j * d + c] > m ? g[j * d + c] : m;
    for (int64_t j = 0; j < n; ++j) {
      const float e = scalar::Exp(g[j * d + c] - m);
      sum += e;
      total = std::fma(e, v[j * d + c], total);
    }
    y[c] = total / sum;
  }
}

}  // namespace lockstep
