// Walsh-Hadamard rotation of heads: spreads what is large in one number over those that share its
// scale in the cache, so that few bits hold the whole better. It keeps dot products, and is its own
// inverse. (QuaRot, arXiv 2404.00456; KV caches: arXiv 2405.16406)
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "ops/kv_layout.h"

namespace lockstep {

inline constexpr std::string_view kHadamardRule = "*d! -> *d";

// What is rotated together in heads of d numbers: the largest power of two that divides d, but no
// more than share a scale. Over more, the noise of a loud block would reach quiet ones, whose
// queries may be loud (docs/numerics.md has figures).
constexpr int64_t HadamardBlock(int64_t d) { return std::min(d & -d, kKvBlock); }

// y = H x / sqrt(block) for each `block` of the n numbers, a power of two that divides n; H[i, j] =
// -1 to the number of bits that i and j share. x is multiplied by the root's reciprocal first;
// then, for half = 1, 2, 4 .. block / 2, numbers that lie `half` apart become their sum and
// difference. y may be x. Finite where sqrt(block) times the largest number is.
using HadamardFn = void(const float* x, int64_t n, int64_t block, float* y);
HadamardFn HadamardReference;

}  // namespace lockstep
