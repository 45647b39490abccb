#include "ops/softmax.h"

#include <limits>

#include "ops/row_reference.h"
#include "simd/scalar.h"

namespace lockstep {

void SoftmaxReference(const float* x, int64_t d, float* y) {
  float most = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < d; ++i) most = x[i] > most ? x[i] : most;
  for (int64_t i = 0; i < d; ++i) y[i] = scalar::Exp(x[i] - most);
  float sum = SumInLanes(d, [&](float lane, int64_t i) { return lane + y[i]; });
  for (int64_t i = 0; i < d; ++i) y[i] /= sum;
}

}  // namespace lockstep
