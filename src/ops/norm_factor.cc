#include "ops/norm_factor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lockstep {

float RangeScale(int32_t max_abs_bits) {
  int32_t exponent = (max_abs_bits >> 23) - 127;
  if (exponent >= -40 && exponent < 40) return 1;
  return std::bit_cast<float>((127 - std::clamp(exponent, -126, 126)) << 23);
}

float NormFactor(float square_sum, int64_t count, float s, float eps) {
  double scale = s;
  double mean = square_sum / static_cast<double>(count) / (scale * scale);
  double root = std::sqrt(mean + eps);
  constexpr double kMost = std::numeric_limits<float>::max();
  return root == 0 ? 0.0f : static_cast<float>(std::min(1 / root / scale, kMost));
}

}  // namespace lockstep
