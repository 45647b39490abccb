// Soft-max attention over cached positions (Vaswani et al. 2017), grouped queries, causal, with
// window, soft cap and sinks.
//
// Canonical order. A query row at position `pos` sees positions p with
// max(first, pos - window + 1) <= p <= pos, or as SeenEnd says where it is not its own position
// that ends them.
//   - Positions are walked in blocks of kAttentionBlock, aligned to position 0; kAttentionSpan
//     positions make a span. Blocks and spans without a visible position are skipped.
//   - score(p) = scale * dot, the dot by fma over d ascending from 0; with a soft cap c it becomes
//     c * tanh(score / c). exp and tanh are those of simd/math.h.
//   - A span starts with m = -inf, l = 0, o = 0. A block gives
//       mb   = max(m, visible scores)
//       corr = exp(m - mb), 0 where m is -inf
//       e(p) = exp(score(p) - mb), 0 where p is not visible
//       l    = fma(l, corr, sum of e over 16 strided lanes, then the tree of simd/simd.h)
//       o    = o corr, then fma(e(p), v(p), o) over visible p ascending
//       m    = mb
//   - Spans merge in ascending order, starting from the first:
//       mm = max(m, m2), c1 = exp(m - mm), c2 = exp(m2 - mm)
//       l  = fma(l, c1, l2 c2), o = fma(o, c1, o2 c2), m = mm
//     A sink comes last, as a span with m2 = sink, l2 = 1, o2 = 0. The result is o (1 / l).
// So neither threads, tiles, micro-batches nor the place of pages can change a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/kv_layout.h"

namespace lockstep {

inline constexpr std::string_view kAttentionRule = "tgrd!, s!gd!, s!gv! -> tgrv";
inline constexpr std::string_view kAttentionSinksRule = "tgrd!, s!gd!, s!gv!, gr -> tgrv";
inline constexpr std::string_view kKvAppendRule = "tgd!, tgv!, s!gd!, s!gv! ->";
inline constexpr std::string_view kKvAppendKeysRule = "tgd!, s!gd! ->";

inline constexpr int64_t kAttentionBlock = kPageTokens;
inline constexpr int64_t kAttentionSpan = 512;

struct RecurrentSlot;

// Where a row's sequence lies: pages[i] is the base of the page with positions 64 i .. 64 i + 63.
struct AttentionRow {
  const std::byte* const* pages = nullptr;
  int64_t position = 0;
  RecurrentSlot* recurrent = nullptr;  // of models with recurrent states (ops/recurrent.h)
};

// Where the positions that a row sees end.
enum class SeenEnd : uint8_t {
  kOwn,     // with its own
  kBefore,  // before its own, which is not the first: another graph caches what is seen
  kBatch,   // with the last of its sequence's rows in the batch, so that those are one piece of the computation
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
  int64_t first = 0;  // position from which on there are any
  SeenEnd seen_end = SeenEnd::kOwn;
};

struct KvAppendTask {
  KvLayout layout;
  int64_t k_offset, v_offset;
  const float* k;  // [t, g, dk]
  int64_t k_stride;
  const float* v;  // [t, g, dv]; null where there is no V, or where it is in K
  int64_t v_stride;
  const AttentionRow* rows;  // [t]; pages are written at each row's position
  int64_t tokens;
};

// Work is dealt in items: one KV head and a tile of query rows of one sequence (tokens that stand
// together with the same `pages`). Items are ordered by KV head.
int64_t AttentionItems(const AttentionTask& task);
// Bytes of scratch a thread needs, 64-byte aligned.
size_t AttentionScratchBytes(const KvLayout& layout, int64_t heads_per_kv);

// Computes items [first, last). Positions are not negative and their pages are there; other pages
// may be null. Rows with a number that is not finite in q, or in a K or V they see, may become NaN;
// no other row does.
using AttentionFn = void(const AttentionTask& task, int64_t first, int64_t last,
                         std::byte* scratch);
AttentionFn AttentionReference;

// Where long contexts meet fewer items than threads, items are dealt in pieces, one span each, and
// merged after all pieces are done; the bits are those of AttentionFn.
int64_t AttentionPieces(const AttentionTask& task);
// Bytes that pieces leave their results in, 64-byte aligned.
size_t AttentionPartialBytes(const AttentionTask& task);
// Computes pieces [first, last) into `partials`.
using AttentionSpansFn = void(const AttentionTask& task, int64_t first, int64_t last,
                              std::byte* partials, std::byte* scratch);
// Merges the pieces of items [first, last) and writes `out`.
using AttentionMergeFn = void(const AttentionTask& task, int64_t first, int64_t last,
                              std::byte* partials, std::byte* scratch);

// Writes K and V of tokens [first, last). Scratch: kKvAppendScratch bytes, heads being at most 1024
// wide.
inline constexpr size_t kKvAppendScratch = 8192;
using KvAppendFn = void(const KvAppendTask& task, int64_t first, int64_t last, std::byte* scratch);
KvAppendFn KvAppendReference;

}  // namespace lockstep
