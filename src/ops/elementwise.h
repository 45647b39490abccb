// Sums and products of rows, element by element.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kAddRule = "*, * -> *";  // linear in both inputs
inline constexpr std::string_view kMulRule = "*, * -> *";  // linear in either, not in both
inline constexpr std::string_view kMulColumnsRule = "t*, * -> t*";  // by a weight, linear in x
inline constexpr std::string_view kMulHeadsRule = "t*d, * -> t*d";
inline constexpr std::string_view kMulEachRule = "t*d, t* -> t*d";
inline constexpr std::string_view kScaleRule = "* -> *";

// n elements each; y may be a, b or x.
using AddRowsFn = void(const float* a, const float* b, int64_t n, float* y);  // y = a + b
using AddScaledRowsFn = void(const float* a, const float* b, float scale, int64_t n,
                             float* y);  // y = fma(b, scale, a)
using MulRowsFn = void(const float* a, const float* b, int64_t n, float* y);  // y = a b
using ScaleRowFn = void(const float* x, float scale, int64_t n, float* y);    // y = x scale
AddRowsFn AddRowsReference;
AddScaledRowsFn AddScaledRowsReference;
MulRowsFn MulRowsReference;
ScaleRowFn ScaleRowReference;

}  // namespace lockstep
