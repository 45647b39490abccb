// Layer norm (Ba, Kiros, Hinton 2016): y = (x - mean(x)) / sqrt(variance(x) + eps) * w + b.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kLayerNormRule = "*d!, d, d -> *d";

// One row. x, y: [d], y may be x. w, b: [d], each may be null. eps >= 0, d < 2^24.
// In range for every finite row, as RmsNormFn is. The variance is the mean square of the deviations (no correction).
//   s = RangeScale(max |x|); mean = (sum over 16 strided lanes of s x) / d; v = s x - mean
//   f = NormFactor(sum over 16 strided lanes of fma(v, v, lane), d, s, eps)
//   y = v f, then * w, then + b
using LayerNormFn = void(const float* x, const float* w, const float* b, int64_t d, float eps,
                         float* y);
LayerNormFn LayerNormReference;

}  // namespace lockstep
