// How rows are reduced, for references. Not for kernel files: their twins are in ops/row_lanes.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep {

// Lane i % 16 takes element i, in ascending i: lane = step(lane, i), from 0. Then the tree of simd/simd.h's ReduceAdd:
// lane i + lane i+8, then +4, +2, +1.
template <typename Step>
float SumInLanes(int64_t n, Step step) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = step(lanes[i % 16], i);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// The largest of the bits of |x[i]|, 0 for an empty row: ordered as the magnitudes are, NaN above all.
inline int32_t MaxAbsBits(const float* x, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<int32_t>(std::fabs(x[i])));
  return most;
}

}  // namespace lockstep
