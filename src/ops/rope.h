// Rotary position embedding (Su et al. 2021) of one head's row, given one position's table (ops/rope_table.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kRopeRule = "*d!, *c! -> *d";

// Rotates the first n_rot elements of x in place; the rest of the row is left alone. n_rot is even; cos, sin: [n_rot/2].
// Pair j becomes (a, b) -> (fma(-b, sin, a cos), fma(a, sin, b cos)).
// Halves ("NeoX"): pair j is x[j], x[j + n_rot/2]. Pairs ("normal", interleaved): pair j is x[2j], x[2j + 1].
using RopeHalvesFn = void(float* x, const float* cos, const float* sin, int64_t n_rot);
using RopePairsFn = void(float* x, const float* cos, const float* sin, int64_t n_rot);
RopeHalvesFn RopeHalvesReference;
RopePairsFn RopePairsReference;

}  // namespace lockstep
