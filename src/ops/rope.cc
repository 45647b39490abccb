#include "ops/rope.h"

#include <cmath>

namespace lockstep {

namespace {

void Rotate(float* first, float* second, float cos, float sin) {
  float a = *first, b = *second;
  *first = std::fma(-b, sin, a * cos);
  *second = std::fma(a, sin, b * cos);
}

}  // namespace

void RopeHalvesReference(float* x, const float* cos, const float* sin, int64_t n_rot) {
  int64_t half = n_rot / 2;
  for (int64_t j = 0; j < half; ++j) Rotate(x + j, x + j + half, cos[j], sin[j]);
}

void RopePairsReference(float* x, const float* cos, const float* sin, int64_t n_rot) {
  for (int64_t j = 0; j < n_rot / 2; ++j) Rotate(x + 2 * j, x + 2 * j + 1, cos[j], sin[j]);
}

}  // namespace lockstep
