#include "ops/l2_norm.h"

#include <cmath>

#include "ops/norm_factor.h"
#include "ops/row_reference.h"

namespace lockstep {

void L2NormReference(const float* x, int64_t d, float eps, float* y) {
  float s = RangeScale(MaxAbsBits(x, d));
  float sum =
      SumInLanes(d, [&](float lane, int64_t i) { return std::fma(s * x[i], s * x[i], lane); });
  float f = NormFactor(sum, 1, s, eps);
  for (int64_t i = 0; i < d; ++i) y[i] = s * x[i] * f;
}

}  // namespace lockstep
