// Where cached K and V of one layer lie in a page of positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/format.h"

namespace lockstep {

// Positions in a page, and in a block of attention's walk (ops/attention.h).
inline constexpr int64_t kPageTokens = 64;
// Positions that share one load of K: SIMD lanes run across them.
inline constexpr int64_t kStripTokens = 16;
// Values in a block of the block types.
inline constexpr int64_t kKvBlock = 32;

// The formats that keys and values can be cached in: three of plain numbers, and those of blocks of
// 32 (Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL).
enum class KvKind { kF32, kF16, kBf16, kBlocks };

// Whether keys and values can be cached in this format.
bool IsKvType(const Format& format);
// The kind of such a format.
KvKind KvKindOf(const Format& format);

// One layer's part of a page, each KV head contiguous, so that a rank can hold a run of heads.
//   K, plain numbers: [g][4 strips][dk][16 positions]
//   K, blocks:        [g][64 positions][row of dk rounded up to 32]
//   V, plain numbers: [g][64 positions][dv rounded up to 16]
//   V, blocks:        [g][64 positions][row of dv rounded up to 32]
// Pages start zeroed; padding is written as zeros and never has a say.
struct KvLayout {
  int64_t kv_heads = 0;
  int64_t dk = 0, dv = 0;
  const Format* k_type = nullptr;
  const Format* v_type = nullptr;

  // Bytes of one KV head's part, and of all heads, in one page.
  int64_t k_head_bytes() const;
  int64_t v_head_bytes() const;
  int64_t k_bytes() const { return kv_heads * k_head_bytes(); }
  int64_t v_bytes() const { return kv_heads * v_head_bytes(); }
  // Values in a row of V with its padding, and the row's bytes.
  int64_t v_row() const;
  int64_t v_row_bytes() const;
};

// One position's key or value of one KV head, whose part of the page begins at `head`; `at` is the
// position within the page. What is read is what the format's decode gives; what is written is what
// its encode gives.
void ReadKey(const KvLayout& layout, const std::byte* head, int64_t at, float* key);  // key: [dk]
void ReadValue(const KvLayout& layout, const std::byte* head, int64_t at,
               float* value);  // value: [dv]
void WriteKey(const KvLayout& layout, const float* key, std::byte* head, int64_t at);  // key: [dk]
void WriteValue(const KvLayout& layout, const float* value, std::byte* head,
                int64_t at);  // value: [dv]

}  // namespace lockstep
