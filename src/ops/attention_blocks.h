// Cached K and V in block types, taken apart to f32 a strip of 16 positions at a time. Included by
// kernel files only.
//
// The values are those of the formats' `decode`, scale * code (+ min); here all scales of a strip
// become f32 together and all codes bytes, without a call a block.
#pragma once

#include <cstdint>

#include "formats/packing_table.h"
#include "ops/attention_lanes.h"
#include "ops/kv_layout.h"
#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {
namespace {

using Bytes16 [[gnu::vector_size(16)]] = uint8_t;

// A block of 32 as files hold it: f16 scale, f16 min, the codes' fifth bits, and their low 4 bits
// (16 codes in the low halves of the bytes, then 16 in the high ones) or whole bytes. A code is
// what is stored less kBias, or looked up in IQ4_NL's table.
template <int kBits, bool kMin, int kBiasOfCodes, bool kInTable = false>
struct BlockShape {
  static constexpr bool kHasMin = kMin, kTable = kInTable, kFifthBits = kBits == 5;
  static constexpr bool kWholeBytes = kBits == 8;
  static constexpr uint8_t kBias = kBiasOfCodes;
  static constexpr int kFifthBitsAt = kHasMin ? 4 : 2;
  static constexpr int kCodesAt = kFifthBitsAt + (kFifthBits ? 4 : 0);
  static constexpr int kBytes = kCodesAt + (kWholeBytes ? 32 : 16);
};

// 16 where bit i of the 16 bits at p is set, 0 elsewhere.
LOCKSTEP_INLINE Bytes16 FifthBits(const std::byte* p) {
  using Shorts [[gnu::vector_size(16)]] = uint16_t;
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  const Bytes16 both = reinterpret_cast<Bytes16>(Shorts{} + bits);
  const Bytes16 spread =
      __builtin_shufflevector(both, both, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  const Bytes16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const Bytes16 kept = spread & bit;
  return ((kept | (kept + 127)) >> 3) & 16;  // a bit anywhere carries to the top
}

// The codes of one block, first and second 16.
template <class Shape>
LOCKSTEP_INLINE void UnpackCodes(const std::byte* block, Bytes16* low, Bytes16* high) {
  Bytes16 stored;
  __builtin_memcpy(&stored, block + Shape::kCodesAt, 16);
  if constexpr (Shape::kWholeBytes) {
    *low = stored;
    __builtin_memcpy(high, block + Shape::kCodesAt + 16, 16);
    return;
  }
  *low = stored & 15;
  *high = stored >> 4;
  if constexpr (Shape::kFifthBits) {
    *low |= FifthBits(block + Shape::kFifthBitsAt);
    *high |= FifthBits(block + Shape::kFifthBitsAt + 2);
  }
  *low -= Shape::kBias;
  *high -= Shape::kBias;
}

// One block of each of 16 positions.
struct BlockStrip {
  alignas(64) Bytes16 codes[2][16];  // [half of the block][position]
  F32x16 scale, min;                 // lanes: positions
};

// block: the first position's; the others follow `row_bytes` apart.
template <class Shape>
LOCKSTEP_INLINE void LoadStrip(const std::byte* block, int64_t row_bytes, BlockStrip* strip) {
  uint16_t scales[16], mins[16];
  for (int i = 0; i < 16; ++i, block += row_bytes) {
    UnpackCodes<Shape>(block, &strip->codes[0][i], &strip->codes[1][i]);
    __builtin_memcpy(scales + i, block, 2);
    if (Shape::kHasMin) __builtin_memcpy(mins + i, block + 2, 2);
  }
  strip->scale = LoadF16(scales);
  if (Shape::kHasMin) strip->min = LoadF16(mins);
  if (Shape::kTable) {
    const U8x64 table = LoadTable16(kIq4Values);
    auto* bytes = reinterpret_cast<uint8_t*>(strip->codes);
    for (int i = 0; i < 512; i += 64) StoreBytes(bytes + i, Lookup16(table, LoadBytes(bytes + i)));
  }
}

// 16 codes, one to a lane, as numbers.
template <class Shape>
LOCKSTEP_INLINE F32x16 Number(const Bytes16& codes, F32x16 scale, F32x16 min) {
  const F32x16 x = Mul(scale, ToF32(LoadI8AsI32(reinterpret_cast<const int8_t*>(&codes))));
  return Shape::kHasMin ? Add(x, min) : x;
}

// Interleaves the upper half of the rows with the lower: the bits of an element's place rotate by
// one.
LOCKSTEP_INLINE void Interleave(const Bytes16 (&a)[16], Bytes16 (&t)[16]) {
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                       22, 7, 23);
    t[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                           29, 14, 30, 15, 31);
  }
}

// a[i][j] becomes a[j][i]: four rotations swap row and column.
LOCKSTEP_INLINE void Transpose16(Bytes16 (&a)[16]) {
  Bytes16 t[16];
  Interleave(a, t);
  Interleave(t, a);
  Interleave(a, t);
  Interleave(t, a);
}

// Positions [begin, end) of a page, in whole strips: head: [64, blocks of a row], rows row_bytes
// apart -> keys: [4, dk, 16].
template <class Shape>
void TakeKeysApart(const std::byte* head, int64_t row_bytes, int64_t dk, int begin, int end,
                   float* keys) {
  for (int strip = begin / 16; strip * 16 < end; ++strip) {
    const std::byte* block = head + strip * 16 * row_bytes;
    for (int64_t first = 0; first < dk; first += kKvBlock, block += Shape::kBytes) {
      BlockStrip s;
      LoadStrip<Shape>(block, row_bytes, &s);
      Transpose16(s.codes[0]);
      Transpose16(s.codes[1]);
      const int64_t count = dk - first < kKvBlock ? dk - first : kKvBlock;
      float* to = keys + (strip * dk + first) * 16;
      for (int64_t d = 0; d < count; ++d) {
        Store(to + d * 16, Number<Shape>(s.codes[d / 16][d % 16], s.scale, s.min));
      }
    }
  }
}

// The same for V: head: [64, width / 32 blocks] -> values: [64, width].
template <class Shape>
void TakeValuesApart(const std::byte* head, int64_t row_bytes, int64_t width, int begin, int end,
                     float* values) {
  for (int strip = begin / 16; strip * 16 < end; ++strip) {
    const std::byte* block = head + strip * 16 * row_bytes;
    for (int64_t first = 0; first < width; first += kKvBlock, block += Shape::kBytes) {
      BlockStrip s;
      LoadStrip<Shape>(block, row_bytes, &s);
      float scales[16], mins[16];
      Store(scales, s.scale);
      if (Shape::kHasMin) Store(mins, s.min);
      for (int i = 0; i < 16; ++i) {
        float* to = values + (strip * 16 + i) * width + first;
        const F32x16 min = Shape::kHasMin ? mins[i] : 0.0f;
        Store(to, Number<Shape>(s.codes[0][i], scales[i], min));
        Store(to + 16, Number<Shape>(s.codes[1][i], scales[i], min));
      }
    }
  }
}

// The same for rows of plain numbers: head: [64, dk rounded up to 16] -> keys: [4, dk, 16].
template <class T>
void WeaveKeys(const std::byte* head, int64_t row_bytes, int64_t dk, int begin, int end,
               float* keys) {
  using F32x4 [[gnu::vector_size(16)]] = float;
  for (int strip = begin / 16; strip * 16 < end; ++strip) {
    const std::byte* rows = head + strip * 16 * row_bytes;
    for (int64_t first = 0; first < dk; first += 16) {
      alignas(64) float in[16][16];
      alignas(64) float out[16][16];
      for (int i = 0; i < 16; ++i) {
        Store(in[i], T::Get(rows + i * row_bytes + first / 16 * T::kBytes));
      }
      for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 16; j += 4) {
          F32x4 a, b, c, d;
          __builtin_memcpy(&a, &in[i][j], 16);
          __builtin_memcpy(&b, &in[i + 1][j], 16);
          __builtin_memcpy(&c, &in[i + 2][j], 16);
          __builtin_memcpy(&d, &in[i + 3][j], 16);
          const F32x4 ac = __builtin_shufflevector(a, c, 0, 4, 1, 5);
          const F32x4 bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
          const F32x4 ac2 = __builtin_shufflevector(a, c, 2, 6, 3, 7);
          const F32x4 bd2 = __builtin_shufflevector(b, d, 2, 6, 3, 7);
          const F32x4 rows4[4] = {__builtin_shufflevector(ac, bd, 0, 4, 1, 5),
                                  __builtin_shufflevector(ac, bd, 2, 6, 3, 7),
                                  __builtin_shufflevector(ac2, bd2, 0, 4, 1, 5),
                                  __builtin_shufflevector(ac2, bd2, 2, 6, 3, 7)};
          for (int n = 0; n < 4; ++n) __builtin_memcpy(&out[j + n][i], &rows4[n], 16);
        }
      }
      const int64_t count = dk - first < 16 ? dk - first : 16;
      __builtin_memcpy(keys + (strip * dk + first) * 16, out,
                       static_cast<size_t>(count) * sizeof(out[0]));
    }
  }
}

using TakeApartFn = void(const std::byte* head, int64_t row_bytes, int64_t width, int begin,
                         int end, float* out);

struct BlockFns {
  uint32_t id;
  TakeApartFn *keys, *values;
};

template <class Shape>
constexpr BlockFns BlockFnsOf(uint32_t id) {
  return {id, TakeKeysApart<Shape>, TakeValuesApart<Shape>};
}

constexpr BlockFns kBlockFns[] = {
    BlockFnsOf<BlockShape<4, false, 8>>(2),         // Q4_0
    BlockFnsOf<BlockShape<4, true, 0>>(3),          // Q4_1
    BlockFnsOf<BlockShape<5, false, 16>>(6),        // Q5_0
    BlockFnsOf<BlockShape<5, true, 0>>(7),          // Q5_1
    BlockFnsOf<BlockShape<8, false, 0>>(8),         // Q8_0
    BlockFnsOf<BlockShape<4, false, 0, true>>(20),  // IQ4_NL
};

// For keys in rows of plain numbers.
inline TakeApartFn* WeaveKeysOf(KvKind kind) {
  return kind == KvKind::kF16    ? WeaveKeys<LanesF16>
         : kind == KvKind::kBf16 ? WeaveKeys<LanesBf16>
                                 : WeaveKeys<LanesF32>;
}

// The functions of a format that KvKindOf calls kBlocks.
inline const BlockFns& BlockFnsFor(const Format& format) {
  const BlockFns* fns = kBlockFns;
  while (fns->id != format.id) ++fns;
  return *fns;
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_ISA
