// Activations as 8-bit codes with one f32 scale for each block of 16, for the integer matrix
// kernels (formats/gemm.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/gemm.h"

namespace lockstep {

inline constexpr std::string_view kQuantizeRowRule = "*k -> *k";  // k cut at multiples of 32

// Where a quantised row goes: k in 32-blocks, rounded up and padded with zeros, each of two blocks
// that have a scale of their own.
struct QuantizedRow {
  int8_t* codes;        // [k/32, 32]  -127 .. 127
  float* scales;        // [k/32, 2]
  int32_t* minus_sums;  // [k/32, 2]  minus the sum of a block's codes
  // Of each block s = scale * float(sum of codes), then of the two fma(scale1, float(sum1), s0).
  float* scaled_sums;  // [k/32, 3]
};

// The blocks of one row from a column on, a multiple of 32.
inline QuantizedRow RowPart(const QuantizedRows& rows, int64_t row, int64_t column) {
  const QuantizedRows at = rows.From(row).FromColumn(column);
  return {at.codes, at.scales, at.minus_sums, at.scaled_sums};
}

// Quantises x: [k]. Returns false where an element is NaN or infinite; such a block is all zeros, the others are right.
//   amax = max |x| of the block; scale = amax / 127; code = round to nearest even of x (127 / amax)
// A block with amax < 2^-96 is multiplied by 2^96 first and its scale by 2^-96 last, so that 127 / amax stays finite.
// So |x - scale code| <= amax (1/254 + 2^-22) + 127 2^-149 for every finite block.
using QuantizeRowFn = bool(const float* x, int64_t k, QuantizedRow out);
QuantizeRowFn QuantizeRowReference;

}  // namespace lockstep
