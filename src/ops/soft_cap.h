// Soft cap: bends values into (-cap, cap).
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kSoftCapRule = "* -> *";

// y[i] = cap * tanh(x[i] / cap) for n elements. cap > 0. y may be x. +-cap at +-Inf.
using SoftCapFn = void(const float* x, int64_t n, float cap, float* y);
SoftCapFn SoftCapReference;

}  // namespace lockstep
