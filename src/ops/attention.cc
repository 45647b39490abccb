#include "ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention_tiles.h"
#include "ops/row_reference.h"
#include "simd/scalar.h"

namespace lockstep {

namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// The online soft-max of some positions: their largest score, the sum of e^(score - m), and of the
// same times V.
struct Sums {
  float m = kMinusInf;
  float l = 0;
  std::vector<float> o;  // [dv]
};

// One query row.
struct Query {
  const AttentionTask& task;
  int64_t token, kv_head, head;
  VisibleRange visible;

  const float* q() const {
    const KvLayout& layout = task.layout;
    return task.q + token * task.q_stride + (kv_head * task.heads_per_kv + head) * layout.dk;
  }
  const std::byte* page(int64_t block) const { return task.rows[token].pages[block]; }
  const std::byte* keys(int64_t block) const {
    return page(block) + task.k_offset + kv_head * task.layout.k_head_bytes();
  }
  const std::byte* values(int64_t block) const {
    return page(block) + task.v_offset + kv_head * task.layout.v_head_bytes();
  }
};

float Score(const Query& query, const float* key) {
  float dot = 0;
  for (int64_t d = 0; d < query.task.layout.dk; ++d) dot = std::fma(query.q()[d], key[d], dot);
  const float score = query.task.scale * dot;
  const float cap = query.task.soft_cap;
  return cap == 0 ? score : cap * scalar::Tanh(score / cap);
}

// Takes a block's visible positions, [begin, end) within it.
void AddBlock(const Query& query, int64_t block, int64_t begin, int64_t end, Sums* sums) {
  const KvLayout& layout = query.task.layout;
  std::vector<float> key(static_cast<size_t>(layout.dk)), value(static_cast<size_t>(layout.dv));
  std::array<float, kAttentionBlock> score, e{};
  float m = sums->m;
  for (int64_t p = begin; p < end; ++p) {
    ReadKey(layout, query.keys(block), p, key.data());
    score[p] = Score(query, key.data());
    m = score[p] > m ? score[p] : m;
  }
  for (int64_t p = begin; p < end; ++p) e[p] = scalar::Exp(score[p] - m);
  const float correction = sums->m == kMinusInf ? 0 : scalar::Exp(sums->m - m);
  const float sum = SumInLanes(kAttentionBlock, [&](float lane, int64_t i) { return lane + e[i]; });
  sums->l = std::fma(sums->l, correction, sum);
  for (float& o : sums->o) o *= correction;
  for (int64_t p = begin; p < end; ++p) {
    ReadValue(layout, query.values(block), p, value.data());
    for (int64_t d = 0; d < layout.dv; ++d) sums->o[d] = std::fma(e[p], value[d], sums->o[d]);
  }
  sums->m = m;
}

void Merge(const Sums& next, Sums* sums) {
  const float m = sums->m > next.m ? sums->m : next.m;
  const float c1 = scalar::Exp(sums->m - m), c2 = scalar::Exp(next.m - m);
  sums->l = std::fma(sums->l, c1, next.l * c2);
  for (size_t d = 0; d < sums->o.size(); ++d) {
    sums->o[d] = std::fma(sums->o[d], c1, next.o[d] * c2);
  }
  sums->m = m;
}

Sums SumsOfSpan(const Query& query, int64_t span) {
  Sums sums;
  sums.o.resize(static_cast<size_t>(query.task.layout.dv));
  const int64_t first = std::max(query.visible.begin, span * kAttentionSpan);
  const int64_t end = std::min(query.visible.end, (span + 1) * kAttentionSpan);
  for (int64_t block = first / kAttentionBlock; block * kAttentionBlock < end; ++block) {
    const int64_t base = block * kAttentionBlock;
    AddBlock(query, block, std::max<int64_t>(0, first - base),
             std::min(kAttentionBlock, end - base), &sums);
  }
  return sums;
}

void AttendRow(const Query& query) {
  const AttentionTask& task = query.task;
  const int64_t first_span = query.visible.begin / kAttentionSpan;
  Sums sums = SumsOfSpan(query, first_span);
  for (int64_t span = first_span + 1; span * kAttentionSpan < query.visible.end; ++span) {
    Merge(SumsOfSpan(query, span), &sums);
  }
  const int64_t head = query.kv_head * task.heads_per_kv + query.head;
  if (task.sinks != nullptr) Merge({task.sinks[head], 1, std::vector<float>(sums.o.size())}, &sums);
  float* out = task.out + query.token * task.out_stride + head * task.layout.dv;
  for (int64_t d = 0; d < task.layout.dv; ++d) out[d] = sums.o[d] * (1 / sums.l);
}

}  // namespace

void AttentionReference(const AttentionTask& task, int64_t first, int64_t last, std::byte*) {
  if (first >= last) return;
  AttentionWalk walk(task);
  walk.SeekItem(first);
  for (int64_t item = first; item < last; ++item, walk.Next()) {
    const AttentionTile& tile = walk.tile();
    for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
      const int64_t token = row / task.heads_per_kv;
      AttendRow(
          {task, token, tile.kv_head, row % task.heads_per_kv, VisiblePositions(task, token)});
    }
  }
}

}  // namespace lockstep
