// Short causal convolution along a sequence, one filter a channel, as recurrent layers have before their state
// (Gu, Dao 2023; Yang et al. 2024) and LFM2 has in their place.
//   y(t)[c] = activation(bias[c] + sum over j of w[c, j] x(t - (taps - 1 - j) dilation)[c])
// Rows before position 0 are zeros. What is carried is the last (taps - 1) dilation rows of x.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// x, w: a filter for each channel, [bias,] the rows before.
inline constexpr std::string_view kCausalConvRule = "t!*, *w!, u!* -> t!*";
inline constexpr std::string_view kCausalConvBiasRule = "t!*, *w!, *, u!* -> t!*";

inline constexpr int64_t kMostConvTaps = 16;

// One row of n channels, without the activation. Canonical order: bias (0 where null), then fma(x[j], w[j], y) in ascending j.
// x: [taps] rows of [n], oldest first. w: [taps, n]. y: [n], no row of x.
using CausalConvFn = void(const float* const* x, const float* w, const float* bias, int64_t taps,
                          int64_t n, float* y);
CausalConvFn CausalConvReference;

}  // namespace lockstep
