// Soft-max of a whole row (router scores, short rows of scores). Attention has its own online form.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kSoftmaxRule = "td! -> td";

// x, y: [d], y may be x.
//   e[i] = Exp(x[i] - max x), with Exp of simd/math.h
//   y[i] = e[i] / (sum over 16 strided lanes of e)
// Elements of -Inf give 0; a row of -Inf only, with +Inf or with NaN gives a row of NaN.
using SoftmaxFn = void(const float* x, int64_t d, float* y);
SoftmaxFn SoftmaxReference;

}  // namespace lockstep
