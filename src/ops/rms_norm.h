// Root-mean-square norm (Zhang, Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * w.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kRmsNormRule = "*d!, d -> *d";
inline constexpr std::string_view kGroupedRmsNormRule = "tg+!, g+ -> tg+";

// One row. x, y: [d], y may be x. w: [d], or null for no weight. eps >= 0.
// Finite and accurate for every finite row: a row whose largest |x| is outside [2^-40, 2^40) is scaled by a
// power of two first. Before w, relative error below (d/16 + 8) 2^-24, or (sqrt(d) + 1) 2^-149 where that is
// more; a row of zeros gives zeros; NaN or Inf gives NaN somewhere in the row.
//   s = RangeScale(max |x|)
//   f = NormFactor(sum over 16 strided lanes of fma(s x, s x, lane), d, s, eps)
//   y = (s x) f w
using RmsNormFn = void(const float* x, const float* w, int64_t d, float eps, float* y);
RmsNormFn RmsNormReference;

}  // namespace lockstep
