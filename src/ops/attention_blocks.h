// Cached K and V in block types, taken apart to f32 a block of positions at a time. Included by
// kernel files only.
//
// The values are those of the format's `decode`: scale * code (+ min), see formats/format.h.
#pragma once

#include <cstdint>

#include "ops/kv_layout.h"
#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {
namespace {

using Bytes16 [[gnu::vector_size(16)]] = int8_t;

// t[i][j] = in[j][i]: each round interleaves the upper half of the rows with the lower, which
// rotates the bits of an element's place by one; four rounds swap row and column.
LOCKSTEP_INLINE void Transpose16(const Bytes16 (&in)[16], Bytes16 (&t)[16]) {
  Bytes16 from[16];
  for (int i = 0; i < 16; ++i) from[i] = in[i];
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 8; ++i) {
      const Bytes16 a = from[i], b = from[i + 8];
      t[2 * i] =
          __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      t[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                             30, 15, 31);
    }
    for (int i = 0; i < 16; ++i) from[i] = t[i];
  }
}

// Positions [begin, end) of a page: head: [64, row of dk rounded up to 32] -> keys: [4, dk, 16].
// Lanes of other positions in the strips touched get any values.
void TakeKeysApart(const KvLayout& layout, const std::byte* head, int begin, int end, float* keys) {
  const Format& type = *layout.k_type;
  const int64_t dk = layout.dk;
  const int64_t row_bytes = (dk + kKvBlock - 1) / kKvBlock * type.block_bytes;
  for (int strip = begin / 16; strip * 16 < end; ++strip) {
    for (int64_t first = 0; first < dk; first += kKvBlock) {
      Bytes16 codes[2][16] = {}, woven[2][16];
      float scales[16] = {}, mins[16] = {};
      for (int lane = 0; lane < 16; ++lane) {
        const int position = strip * 16 + lane;
        if (position < begin || position >= end) continue;
        int8_t block[kKvBlock];
        type.integers(head + position * row_bytes + first / kKvBlock * type.block_bytes, block,
                      scales + lane, mins + lane);
        __builtin_memcpy(&codes[0][lane], block, 16);
        __builtin_memcpy(&codes[1][lane], block + 16, 16);
      }
      for (int half = 0; half < 2; ++half) Transpose16(codes[half], woven[half]);
      const F32x16 scale = Load(scales), min = Load(mins);
      const int64_t count = dk - first < kKvBlock ? dk - first : kKvBlock;
      float* to = keys + (strip * dk + first) * 16;
      for (int64_t d = 0; d < count; ++d) {
        int8_t lanes[16];
        __builtin_memcpy(lanes, &woven[d / 16][d % 16], 16);
        const F32x16 x = Mul(scale, ToF32(LoadI8AsI32(lanes)));
        Store(to + d * 16, type.has_min ? Add(x, min) : x);
      }
    }
  }
}

// Positions [begin, end) of a page: head: [64, row of dv rounded up to 32] -> values: [64, dv
// rounded up to 32].
void TakeValuesApart(const KvLayout& layout, const std::byte* head, int begin, int end,
                     float* values) {
  const Format& type = *layout.v_type;
  const int64_t blocks = layout.v_row() / kKvBlock;
  for (int position = begin; position < end; ++position) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t block = position * blocks + b;
      int8_t codes[kKvBlock];
      float scale = 0, min = 0;
      type.integers(head + block * type.block_bytes, codes, &scale, &min);
      for (int half = 0; half < 2; ++half) {
        const F32x16 x = Mul(scale, ToF32(LoadI8AsI32(codes + 16 * half)));
        Store(values + block * kKvBlock + 16 * half, type.has_min ? Add(x, min) : x);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_ISA
