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
// Latent attention's V is the first dv numbers of K, which then lies by rows, whatever its type:
//   K with V in it:   [g][64 positions][row of dk rounded up to 16, or 32 for blocks]
// Pages start zeroed; padding is written as zeros and never has a say.
struct KvLayout {
  int64_t kv_heads = 0;
  int64_t dk = 0, dv = 0;  // dv 0: no V
  const Format* k_type = nullptr;
  const Format* v_type = nullptr;  // with V in K: the type of K
  bool values_in_keys = false;     // dv <= dk
  // Positions that share one entry, where V is in K: 1, or a power of two. The entry of positions
  // pool e .. pool e + pool - 1 lies in the page of the last one, at EntryAt().
  int64_t pool = 1;

  // Entries of a page, and where an entry lies.
  int64_t page_entries() const { return pool < kPageTokens ? kPageTokens / pool : 1; }
  int64_t EntryPage(int64_t entry) const { return (entry * pool + pool - 1) / kPageTokens; }
  int64_t EntryAt(int64_t entry) const { return entry % page_entries(); }
  bool keys_in_rows() const;
  // Bytes of a row of K, where it lies by rows.
  int64_t k_row_bytes() const;
  // Bytes from one KV head's part of a page to the next, and of all heads.
  int64_t k_head_bytes() const;
  int64_t v_head_bytes() const;
  int64_t k_bytes() const { return kv_heads * k_head_bytes(); }
  int64_t v_bytes() const { return values_in_keys ? 0 : kv_heads * v_head_bytes(); }
  // Values in a row of V with its padding, and the bytes from one row to the next.
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

// Copies one position's K and V of all KV heads as they are cached. `from` and `to`: pages with K
// at k_offset and V at v_offset.
struct KvPlace {
  int64_t k_offset, v_offset;  // bytes from the page's begin
};
void CopyPosition(const KvLayout& layout, const std::byte* from, KvPlace from_place,
                  int64_t from_at, std::byte* to, KvPlace to_place, int64_t to_at);

}  // namespace lockstep
