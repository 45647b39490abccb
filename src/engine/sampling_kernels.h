// The two passes over a whole vocabulary, compiled once per instruction set. Internal to the
// sampler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/isa.h"

namespace lockstep::sampling {

// Logits are looked at in blocks of this many tokens: a block's greatest logit lets a selection
// skip it.
inline constexpr size_t kBlock = 128;

struct Kernels {
  // max[b]: the greatest of block b of x [blocks * kBlock]. True where no x is NaN or +Inf.
  bool (*block_max)(const float* x, size_t blocks, float* max);
  // sums[b]: the sum of e^(x - max) over block b, for `max` not below any x; relative error below
  // 4e-6, and terms are at least 2^-126. 16 strided lanes, then their tree.
  void (*exp_sums)(const float* x, size_t blocks, float max, float* sums);
};

// Every instruction set gives the same bits.
const Kernels& KernelsFor(Isa isa);

}  // namespace lockstep::sampling
