// The place of a row's largest element.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kArgmaxRule = "*d! -> *";

// Index of the largest of x[0 .. d), the lower of equal ones (-0 equals 0); NaN is passed over. -1 where there is no
// number. d < 2^31.
using ArgmaxFn = int64_t(const float* x, int64_t d);
ArgmaxFn ArgmaxReference;

}  // namespace lockstep
