#include <cstring>

#include "ops/attention_blocks.h"
#include "ops/attention_lanes.h"
#include "ops/index_scores.h"

namespace lockstep::LOCKSTEP_ISA {

IndexScoresFn IndexScores;

namespace {

// The block's entries, woven: [4, d, 16].
void WeaveEntries(const IndexScoresTask& task, int64_t first, int64_t count,
                  const IndexScratch& scratch) {
  const KvLayout& layout = task.layout;
  const int64_t row_bytes = layout.k_row_bytes(), here = layout.page_entries();
  const std::byte* rows = task.pages[layout.EntryPage(first)] + task.k_offset;
  if (here < kPageTokens) {
    for (int64_t i = 0; i < count; i += here) {
      const std::byte* from = task.pages[layout.EntryPage(first + i)] + task.k_offset;
      const int64_t entries = count - i < here ? count - i : here;
      std::memcpy(scratch.rows + i * row_bytes, from, static_cast<size_t>(entries * row_bytes));
    }
    rows = scratch.rows;
  }
  const KvKind kind = KvKindOf(*layout.k_type);
  TakeApartFn* weave =
      kind == KvKind::kBlocks ? BlockFnsFor(*layout.k_type).keys : WeaveKeysOf(kind);
  weave(rows, row_bytes, layout.dk, 0, static_cast<int>(count), scratch.keys);
}

}  // namespace

void IndexScores(const IndexScoresTask& task, int64_t first, int64_t count, float* scores,
                 std::byte* scratch_bytes) {
  const IndexScratch scratch(task.layout, scratch_bytes);
  const int64_t d = task.layout.dk;
  const int strips = static_cast<int>((count + 15) / 16);
  WeaveEntries(task, first, count, scratch);
  F32x16 sums[4] = {Zero(), Zero(), Zero(), Zero()};
  const F32x16 scale = task.scale;
  int group = 0;
  for (int64_t head = 0; head < task.heads; head += group) {
    const int size = GroupSizeFor(task.heads - head);
    group = kAllGroupSizes[size];
    for (int n = 0; n < group; ++n) {
      const bool padding = head + n >= task.heads;
      const float* q = task.q + (head + n) * d;
      for (int64_t j = 0; j < d; ++j) scratch.q[j * group + n] = padding ? 0 : q[j];
    }
    ScoresOf(KvKind::kF32)[size](scratch.q, reinterpret_cast<const std::byte*>(scratch.keys), d, 0,
                                 strips, {}, scratch.scores);
    for (int n = 0; n < group && head + n < task.heads; ++n) {
      const F32x16 weight = task.weights == nullptr ? 1.0f : task.weights[head + n];
      for (int s = 0; s < strips; ++s) {
        const F32x16 x = Mul(scale, Load(scratch.scores + n * kAttentionBlock + s * 16));
        sums[s] = Fma(weight, Select(Less(Zero(), x), x, Zero()), sums[s]);
      }
    }
  }
  for (int s = 0; s < strips; ++s) Store(scores + s * 16, sums[s]);
}

}  // namespace lockstep::LOCKSTEP_ISA
