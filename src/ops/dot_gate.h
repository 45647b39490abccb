// How alike two rows are, as a gate: y = sigmoid(r) with r the square root of their scaled product, with its sign (the per-layer n-gram
// embeddings of Qwen4).
//   d = scale times the sum over 16 strided lanes of fma(a, b, lane), then the tree of simd/simd.h
//   y = Sigmoid(sqrt(max(|d|, 1e-6)) with the sign of d), Sigmoid(0) where d is 0
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kDotGateRule = "tgk!, tgk! -> tg";

// Sum of the products of two rows of n.
using DotRowsFn = float(const float* a, const float* b, int64_t n);
DotRowsFn DotRowsReference;

float DotGate(float dot, float scale);

}  // namespace lockstep
