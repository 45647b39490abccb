// Soft-max attention over cached positions (Vaswani et al. 2017), grouped queries, causal, with window, soft cap and sinks.
//
// Canonical order: a query row at position `pos` sees positions p with max(0, pos - window + 1) <= p <= pos.
//   - Positions are walked in blocks of kAttentionBlock aligned to position 0; kAttentionSpan positions make a span. Blocks and spans
//     without a visible position are skipped.
//   - score(p) = scale * dot, the dot by fma over d ascending from 0; with a soft cap c * tanh(score / c).
//   - A span starts with m = -inf, l = 0, o = 0. A block gives
//       mb = max(m, visible scores); corr = exp(m - mb), 0 where m is -inf; e(p) = exp(score(p) - mb), 0 where p is not visible
//       l = fma(l, corr, sum of e over 16 strided lanes, then the tree of simd/simd.h)
//       o = o corr, then o = fma(e(p), v(p), o) over visible p ascending; m = mb
//   - Spans merge in ascending order: mm = max(m, m2), c1 = exp(m - mm), c2 = exp(m2 - mm), l = fma(l, c1, l2 c2),
//     o = fma(o, c1, o2 c2). A sink comes last, as a span with m2 = sink, l2 = 1, o2 = 0. The result is o (1 / l).
// So neither threads, tiles, micro-batches nor the place of pages can change a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/kv_layout.h"

namespace lockstep {

inline constexpr std::string_view kAttentionRule = "tgrd!, s!gd!, s!gv! -> tgrv";
inline constexpr std::string_view kKvAppendRule = "tgd!, tgv!, s!gd!, s!gv! ->";

inline constexpr int64_t kAttentionBlock = kPageTokens;
inline constexpr int64_t kAttentionSpan = 512;

// Where a row's sequence lies: pages[i] is the base of the page with positions 64 i .. 64 i + 63.
struct AttentionRow {
  const std::byte* const* pages = nullptr;
  int64_t position = 0;
};

struct AttentionTask {
  KvLayout layout;
  int64_t k_offset, v_offset;  // this layer's parts in a page, bytes
  int64_t heads_per_kv;        // r
  float scale;
  float soft_cap;      // 0: none
  int64_t window;      // positions seen, 0: all
  const float* sinks;  // [g, r] or null
  const float* q;      // [t, g, r, dk]
  int64_t q_stride;    // floats between tokens
  float* out;          // [t, g, r, dv]
  int64_t out_stride;
  const AttentionRow* rows;  // [t]; rows of one sequence stand together
  int64_t tokens;
};

struct KvAppendTask {
  KvLayout layout;
  int64_t k_offset, v_offset;
  const float* k;  // [t, g, dk]
  int64_t k_stride;
  const float* v;  // [t, g, dv]
  int64_t v_stride;
  const AttentionRow* rows;  // [t]; pages are written at each row's position
  int64_t tokens;
};

// Work is dealt in items: one KV head and a tile of consecutive rows of one sequence.
int64_t AttentionItems(const AttentionTask& task);
// Bytes of scratch a thread needs, 64-byte aligned.
size_t AttentionScratchBytes(const KvLayout& layout, int64_t heads_per_kv);

// Computes items [first, last).
using AttentionFn = void(const AttentionTask& task, int64_t first, int64_t last, std::byte* scratch);
AttentionFn AttentionReference;

// Writes K and V of tokens [first, last).
using KvAppendFn = void(const KvAppendTask& task, int64_t first, int64_t last, std::byte* scratch);
KvAppendFn KvAppendReference;

}  // namespace lockstep
