// Whether numbers are finite, for operations whose results outlive a batch.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace lockstep {

// Sums could overflow, so bits are compared.
inline bool AllFinite(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  return most < 0x7f800000;
}

}  // namespace lockstep
