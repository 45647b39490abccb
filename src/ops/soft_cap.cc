#include "ops/soft_cap.h"

#include "simd/scalar.h"

namespace lockstep {

void SoftCapReference(const float* x, int64_t n, float cap, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = cap * scalar::Tanh(x[i] / cap);
}

}  // namespace lockstep
