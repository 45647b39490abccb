// Activations as 8-bit codes with one f32 scale for each block of 32, for the integer matrix kernels (formats/gemm.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/gemm.h"

namespace lockstep {

inline constexpr std::string_view kQuantizeRowRule = "*k -> *k";  // k cut at multiples of 32
inline constexpr int64_t kQuantizeBlock = 32;

// Where a quantised row goes; blocks = k / 32 rounded up, the last one padded with zeros.
struct QuantizedRow {
  int8_t* codes;  // [blocks, 32], -127 .. 127
  float* scales;  // [blocks]
  // Of the codes of the first half, the second half and the whole of each block:
  int32_t* minus_sums;  // [blocks, 3]  minus their sum
  float* scaled_sums;   // [blocks, 3]  scale * float(sum)
};

// The blocks of one row from a column on, which is a block's first.
inline QuantizedRow RowPart(const QuantizedRows& rows, int64_t row, int64_t column) {
  const QuantizedRows at = rows.From(row);
  const int64_t block = column / kBlockK;
  return {at.codes + column, at.scales + block, at.minus_sums + 3 * block, at.scaled_sums + 3 * block};
}

// Quantises x: [k]. Returns false where an element is NaN or infinite; such a block is all zeros, the others are right.
//   amax = max |x| of the block; scale = amax / 127; code = round to nearest even of x (127 / amax)
// A block with amax < 2^-96 is multiplied by 2^96 first and its scale by 2^-96 last, so that 127 / amax stays finite.
// So |x - scale code| <= amax (1/254 + 2^-22) + 127 2^-149 for every finite block.
using QuantizeRowFn = bool(const float* x, int64_t k, QuantizedRow out);
QuantizeRowFn QuantizeRowReference;

}  // namespace lockstep
