#include "ops/elementwise.h"

#include <cmath>

namespace lockstep {

void AddRowsReference(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void AddScaledRowsReference(const float* a, const float* b, float scale, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(b[i], scale, a[i]);
}

void MulRowsReference(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void ScaleRowReference(const float* x, float scale, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
}

}  // namespace lockstep
