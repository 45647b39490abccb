#include "ops/layer_norm.h"

#include <cmath>

#include "ops/norm_factor.h"
#include "ops/row_reference.h"

namespace lockstep {

void LayerNormReference(const float* x, const float* w, const float* b, int64_t d, float eps,
                        float* y) {
  float s = RangeScale(MaxAbsBits(x, d));
  float sum = SumInLanes(d, [&](float lane, int64_t i) { return lane + s * x[i]; });
  float mean = sum / static_cast<float>(d);
  float squares = SumInLanes(d, [&](float lane, int64_t i) {
    float v = s * x[i] - mean;
    return std::fma(v, v, lane);
  });
  float f = NormFactor(squares, d, s, eps);
  for (int64_t i = 0; i < d; ++i) {
    y[i] = (s * x[i] - mean) * f;
    if (w != nullptr) y[i] *= w[i];
    if (b != nullptr) y[i] += b[i];
  }
}

}  // namespace lockstep
