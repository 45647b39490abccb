// The soft-max weighted mean of n rows, every channel by itself: y[c] = sum over j of softmax(g[., c])[j] v[j][c], as compressed attention
// makes one key of several (DeepSeek-V4, DeepSeek-AI 2026, section 2.3).
//
// Canonical order, for a channel:
//   m    = max over j ascending, from -Inf, of g(j)
//   e(j) = Exp(g(j) - m), with Exp of simd/math.h
//   s    = sum of e(j) over j ascending from 0
//   y    = (sum by fma(e(j), v(j), .) over j ascending from 0) / s
#pragma once

#include <cstdint>

namespace lockstep {

// v, g: [n, d]; y: [d], apart from both.
using PoolRowsFn = void(const float* v, const float* g, int64_t n, int64_t d, float* y);
PoolRowsFn PoolRowsReference;

}  // namespace lockstep
