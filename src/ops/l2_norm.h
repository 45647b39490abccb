// Division of a row by its length: y = x / sqrt(sum(x^2) + eps), as gated delta networks norm queries and keys.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kL2NormRule = "*d! -> *d";

// One row. x, y: [d], y may be x. eps >= 0. Range and errors as RmsNormFn.
//   s = RangeScale(max |x|)
//   f = NormFactor(sum over 16 strided lanes of fma(s x, s x, lane), 1, s, eps)
//   y = (s x) f
using L2NormFn = void(const float* x, int64_t d, float eps, float* y);
L2NormFn L2NormReference;

}  // namespace lockstep
