// Two values side by side in each head: y[t, .., a + b] = x[t, .., a], z[t, .., b].
#pragma once

#include "ops/operations.h"

namespace lockstep {

inline constexpr std::string_view kConcatRule = "t*a!, t*b! -> t*c";

// a, b: widths of the last axis.
OperationPtr MakeConcat(int64_t a, int64_t b);

}  // namespace lockstep
