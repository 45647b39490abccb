// What the three norms share: keeping squares in range, and the factor from a sum of squares. Compiled once and called
// by references and kernels alike.
#pragma once

#include <cstdint>

namespace lockstep {

// A power of two s such that the squares of s*x neither overflow nor vanish in f32, given the bits of the row's largest
// |x|: 1 where that is in [2^-40, 2^40), else the one that brings it nearest to 1 with s and 1/s normal.
float RangeScale(int32_t max_abs_bits);

// The f32 nearest to 1 / (s sqrt(square_sum / (count s^2) + eps)), computed in double: what turns s*x into x over its
// root mean square (count: elements) or its length (count: 1). 0 where the root is 0; never infinite, so that the
// deviations of a constant row stay 0.
float NormFactor(float square_sum, int64_t count, float s, float eps);

}  // namespace lockstep
