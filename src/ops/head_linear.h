// A matrix of its own for each head: y[t, h, n] = sum over k of x[t, h, k] W[h, n, k], as latent attention takes queries into the latent
// space and values out of it (DeepSeek-AI 2024, section 2.1.2).
//
// Each head is a multiplication of formats/gemm.h with one segment: what a head sums over is never cut.
#pragma once

#include "ops/operations.h"

namespace lockstep {

inline constexpr std::string_view kHeadLinearRule = "t*hk!, hnk! -> t*hn";
inline constexpr std::string_view kGroupedLinearRule = "t*!, h!nk! -> thn";

// x: [t, .., heads, k], W: [heads, n, k]
OperationPtr MakeHeadLinear();
// The same for a row that heads share among them, each taking its run of k: x: [t, ..] of heads k numbers. [t, heads, n]
OperationPtr MakeGroupedLinear();

}  // namespace lockstep
