// Where cached K and V of one layer lie in a page of positions.
#pragma once

#include <cstdint>

#include "formats/format.h"

namespace lockstep {

// Positions in a page, and in a block of attention's walk (ops/attention.h).
inline constexpr int64_t kPageTokens = 64;
// Positions that share one load of K: SIMD lanes run across them.
inline constexpr int64_t kStripTokens = 16;

// One layer's part of a page, each KV head contiguous, so that a rank can hold a run of heads.
//   K, float types: [g][4 strips][dk][16 positions]          K, block types: [g][64 positions][row of dk rounded up to 32]
//   V, float types: [g][64 positions][dv rounded up to 16]   V, block types: [g][64 positions][row of dv rounded up to 32]
// Types are F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL. Pages start zeroed.
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
};

// Whether keys and values can be cached in this format.
bool IsKvType(const Format& format);

}  // namespace lockstep
