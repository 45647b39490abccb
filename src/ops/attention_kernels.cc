#include "ops/attention.h"

#include "ops/attention_blocks.h"
#include "ops/attention_lanes.h"
#include "ops/attention_tiles.h"
#include "ops/row_lanes.h"
#include "simd/math.h"

namespace lockstep::LOCKSTEP_ISA {

AttentionFn Attention;
AttentionSpansFn AttentionSpans;
AttentionMergeFn AttentionMerge;

namespace {

constexpr float kMinusInf = -__builtin_inff();
constexpr int kMaxRows = kAttentionPaddedRows;
constexpr int kBlock = kAttentionBlock;

LOCKSTEP_INLINE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
LOCKSTEP_INLINE int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }

// A part of a block: positions [begin, end) of its 64.
struct Part {
  int begin, end;
  bool empty() const { return begin >= end; }
};

// Rows that go through registers together.
struct Group {
  int row;   // the first, within the tile
  int size;  // index into kAllGroupSizes
  int count() const { return kAllGroupSizes[size]; }
};

// A tile in the works. Rows are padded to whole groups; padding sees nothing.
struct TileState {
  const AttentionTask& task;
  const AttentionTile& tile;
  const AttentionScratch& scratch;
  int64_t v_row, v_position_bytes;
  int64_t k_head_bytes, v_head_bytes;
  ScoresFn* const* scores;
  ValuesFn* const* values;
  TakeApartFn* k_blocks = nullptr;  // null where K is woven already
  TakeApartFn* v_blocks = nullptr;
  VisibleRange visible[kMaxRows];
  Group groups[kMaxRows];
  int group_count = 0;
  int rows = 0;                    // with padding
  int64_t end_block = 0;           // after the last that a row sees
  float m[kMaxRows], l[kMaxRows];  // of the span in hand

  TileState(const AttentionTask& the_task, const AttentionTile& the_tile,
            const AttentionScratch& the_scratch);

  int64_t token(int64_t row) const { return (tile.first_row + row) / task.heads_per_kv; }
  // Among all query heads.
  int64_t head(int64_t row) const {
    return tile.kv_head * task.heads_per_kv + (tile.first_row + row) % task.heads_per_kv;
  }
  Part PartOf(int row, int64_t block) const {
    const int64_t base = block * kBlock;
    return {static_cast<int>(Most(0, visible[row].begin - base)),
            static_cast<int>(Least(kBlock, visible[row].end - base))};
  }
};

TileState::TileState(const AttentionTask& the_task, const AttentionTile& the_tile,
                     const AttentionScratch& the_scratch)
    : task(the_task), tile(the_tile), scratch(the_scratch) {
  const KvLayout& layout = task.layout;
  const KvKind k_kind = KvKindOf(*layout.k_type), v_kind = KvKindOf(*layout.v_type);
  v_row = layout.v_row();
  v_position_bytes = v_kind == KvKind::kBlocks ? v_row * 4 : layout.v_row_bytes();
  k_head_bytes = layout.k_head_bytes();
  v_head_bytes = layout.v_head_bytes();
  scores = ScoresOf(layout.keys_in_rows() ? KvKind::kF32 : k_kind);
  values = ValuesOf(v_kind);
  if (k_kind == KvKind::kBlocks) {
    k_blocks = BlockFnsFor(*layout.k_type).keys;
  } else if (layout.keys_in_rows()) {
    k_blocks = WeaveKeysOf(k_kind);
  }
  if (v_kind == KvKind::kBlocks) v_blocks = BlockFnsFor(*layout.v_type).values;
  while (rows < tile.rows) {
    groups[group_count] = {rows, GroupSizeFor(tile.rows - rows)};
    rows += groups[group_count++].count();
  }
  for (int row = 0; row < rows; ++row) {
    visible[row] = row < tile.rows ? VisiblePositions(task, token(row)) : VisibleRange{};
    end_block = Most(end_block, (visible[row].end + kBlock - 1) / kBlock);
  }
}

// Puts queries in the order in which scores read them; padding is zeros.
void PackQueries(const TileState& state) {
  const AttentionTask& task = state.task;
  const int64_t dk = task.layout.dk;
  for (int g = 0; g < state.group_count; ++g) {
    const int count = state.groups[g].count();
    float* to = state.scratch.q + state.groups[g].row * dk;
    for (int n = 0; n < count; ++n) {
      const int row = state.groups[g].row + n;
      const bool padding = row >= state.tile.rows;
      const float* from =
          padding ? nullptr : task.q + state.token(row) * task.q_stride + state.head(row) * dk;
      for (int64_t d = 0; d < dk; ++d) to[d * count + n] = padding ? 0 : from[d];
    }
  }
}

// What a group's rows see of a block.
struct GroupView {
  Part part[kLargestGroup];
  Part any = {kBlock, 0};  // seen by some row
  Part all = {0, kBlock};  // seen by all rows that see something
  uint32_t rows = 0;       // bits of those rows

  GroupView(const TileState& state, const Group& group, int64_t block) {
    for (int n = 0; n < group.count(); ++n) {
      part[n] = state.PartOf(group.row + n, block);
      if (part[n].empty()) continue;
      rows |= 1u << n;
      if (part[n].begin < any.begin) any.begin = part[n].begin;
      if (part[n].end > any.end) any.end = part[n].end;
      if (part[n].begin > all.begin) all.begin = part[n].begin;
      if (part[n].end < all.end) all.end = part[n].end;
    }
  }
  bool sees(int n) const { return (rows >> n & 1) != 0; }
};

LOCKSTEP_INLINE Mask16 LanesOf(Part part, int strip) {
  return And(FirstLanes(part.end - 16 * strip), Not(FirstLanes(part.begin - 16 * strip)));
}

// Dots become scores in place, -Inf where a row sees nothing; returns the largest of them and `m`.
LOCKSTEP_INLINE float FinishScores(const AttentionTask& task, Part part, int strip, int end,
                                   float m, float* scores) {
  const F32x16 scale = task.scale, cap = task.soft_cap;
  F32x16 most = kMinusInf;
  for (; strip < end; ++strip) {
    F32x16 x = Mul(scale, Load(scores + 16 * strip));
    if (task.soft_cap != 0) x = Mul(cap, math::Tanh(Div(x, cap)));
    x = Select(LanesOf(part, strip), x, kMinusInf);
    Store(scores + 16 * strip, x);
    most = Max(x, most);
  }
  const float found = ReduceMax(most);
  return found > m ? found : m;
}

// Scores become e^(score - m) in place, so that -Inf, where a row sees nothing, becomes 0; returns
// their sum. Where m is -Inf itself the sum is NaN, as the scores seen make it.
LOCKSTEP_INLINE float Exponentials(int strip, int end, float m, float* scores) {
  F32x16 sum = 0.0f;
  for (; strip < end; ++strip) {
    const F32x16 e = math::Exp(Sub(Load(scores + 16 * strip), m));
    Store(scores + 16 * strip, e);
    sum = Add(sum, e);
  }
  return ReduceAdd(sum);
}

// The soft-max of a block for a group: scores become weights, m and l move on, `correction` is what
// older sums shrink by.
void SoftmaxBlock(const TileState& state, const GroupView& view, int count, float* m, float* l,
                  float* correction) {
  float top[kLargestGroup + 15], sum[kLargestGroup + 15];
  const int strip = view.any.begin / 16, end = (view.any.end + 15) / 16;
  for (int n = 0; n < count; ++n) {
    top[n] = m[n];
    sum[n] = 0;
    if (!view.sees(n)) continue;
    float* scores = state.scratch.scores + n * kBlock;
    top[n] = FinishScores(state.task, view.part[n], strip, end, m[n], scores);
    sum[n] = Exponentials(strip, end, top[n], scores);
  }
  ForEach16(count, [&](int64_t n, int lanes) {
    const F32x16 old_m = LoadN(m + n, lanes), new_m = LoadN(top + n, lanes);
    const F32x16 c = Select(Equal(old_m, kMinusInf), 0.0f, math::Exp(Sub(old_m, new_m)));
    StoreN(correction + n, c, lanes);
    StoreN(l + n, Fma(LoadN(l + n, lanes), c, LoadN(sum + n, lanes)), lanes);
    StoreN(m + n, new_m, lanes);
  });
}

// Adds a block's weighted V: together where all rows see a position, row by row at the edges.
void AddValues(const TileState& state, const GroupView& view, const Group& group,
               const std::byte* v, Ahead ahead, float* correction) {
  const int64_t v_row = state.v_row;
  const int64_t position_bytes = state.v_position_bytes;
  float* o = state.scratch.span_o + group.row * v_row;
  const auto add = [&](int size, int n, Part part, uint32_t rows) {
    state.values[size](state.scratch.scores + n * kBlock + part.begin,
                       v + part.begin * position_bytes, position_bytes, v_row, part.end - part.begin,
                       correction + n, rows, ahead, o + n * v_row);
  };
  const bool together = !view.all.empty();
  for (int n = 0; n < group.count(); ++n) {
    if (!view.sees(n)) continue;
    const Part head = {view.part[n].begin, together ? view.all.begin : view.part[n].end};
    if (head.empty()) continue;
    add(0, n, head, 1);
    correction[n] = 1;
  }
  if (!together) return;
  add(group.size, 0, view.all, view.rows);
  for (int n = 0; n < group.count(); ++n) {
    const Part tail = {view.all.end, view.part[n].end};
    if (!view.sees(n) || tail.empty()) continue;
    correction[n] = 1;
    add(0, n, tail, 1);
  }
}

// What some row of the tile sees of a block.
Part SeenByTile(const TileState& state, int64_t block) {
  Part seen = {kBlock, 0};
  for (int row = 0; row < state.rows; ++row) {
    const Part part = state.PartOf(row, block);
    if (part.empty()) continue;
    if (part.begin < seen.begin) seen.begin = part.begin;
    if (part.end > seen.end) seen.end = part.end;
  }
  return seen;
}

// Where K and V of the tile's head lie in a page.
struct HeadAt {
  const std::byte *k, *v;

  HeadAt(const TileState& state, const std::byte* page)
      : k(page + state.task.k_offset + state.tile.kv_head * state.k_head_bytes),
        v(page + state.task.v_offset + state.tile.kv_head * state.v_head_bytes) {}
};

void WalkBlock(TileState& state, int64_t block) {
  const Part seen = SeenByTile(state, block);
  if (seen.empty()) return;
  const KvLayout& layout = state.task.layout;
  const std::byte* const* pages = state.task.rows[state.token(0)].pages + block;
  HeadAt at(state, pages[0]);
  const bool last = block + 1 == state.end_block || pages[1] == nullptr;
  const HeadAt next(state, pages[last ? 0 : 1]);
  const Ahead next_k = {next.k, next.k + state.k_head_bytes};
  // V in K arrives with it.
  Ahead next_v = {at.v, layout.values_in_keys ? at.v : at.v + state.v_head_bytes};
  if (state.k_blocks != nullptr) {
    state.k_blocks(at.k, layout.k_row_bytes(), layout.dk, seen.begin, seen.end, state.scratch.keys);
    at.k = reinterpret_cast<const std::byte*>(state.scratch.keys);
  }
  if (state.v_blocks != nullptr) {
    next_v = {next.v, next.v + state.v_head_bytes};
    state.v_blocks(at.v, layout.v_row_bytes(), state.v_row, seen.begin, seen.end, state.scratch.values);
    at.v = reinterpret_cast<const std::byte*>(state.scratch.values);
  }
  for (int g = 0; g < state.group_count; ++g) {
    const Group& group = state.groups[g];
    const GroupView view(state, group, block);
    if (view.rows == 0) continue;
    state.scores[group.size](state.scratch.q + group.row * layout.dk, at.k, layout.dk,
                             view.any.begin / 16, (view.any.end + 15) / 16, next_v,
                             state.scratch.scores);
    float correction[kLargestGroup];
    SoftmaxBlock(state, view, group.count(), state.m + group.row, state.l + group.row, correction);
    AddValues(state, view, group, at.v, next_k, correction);
  }
}

// Fills m, l and span_o with the sums of one span.
void WalkSpan(TileState& state, int64_t span) {
  for (int row = 0; row < state.rows; ++row) {
    state.m[row] = kMinusInf;
    state.l[row] = 0;
  }
  float* o = state.scratch.span_o;
  for (int64_t i = 0; i < state.rows * state.v_row; i += 16) Store(o + i, 0.0f);
  constexpr int64_t kBlocks = kAttentionSpan / kBlock;
  for (int64_t block = span * kBlocks; block < (span + 1) * kBlocks; ++block) {
    WalkBlock(state, block);
  }
}

bool SeesSpan(VisibleRange visible, int64_t span) {
  return visible.begin < (span + 1) * kAttentionSpan && span * kAttentionSpan < visible.end;
}

// The sums of one row over spans so far.
struct RowSums {
  float m, l;
  float* o;    // [v_row]
  bool begun;  // false: nothing seen yet, the rest is undefined
};

LOCKSTEP_INLINE float FirstLane(F32x16 v) {
  float lanes[16];
  Store(lanes, v);
  return lanes[0];
}

// Takes the sums of the next span; o: [v_row], or null for zeros.
void Merge(RowSums* sums, float m, float l, const float* o, int64_t v_row) {
  if (!sums->begun) {
    *sums = {m, l, sums->o, true};
    for (int64_t i = 0; i < v_row; i += 16) Store(sums->o + i, Load(o + i));
    return;
  }
  const float top = sums->m > m ? sums->m : m;
  const F32x16 c1 = math::Exp(F32x16(sums->m - top)), c2 = math::Exp(F32x16(m - top));
  sums->m = top;
  sums->l = FirstLane(Fma(sums->l, c1, Mul(l, c2)));
  for (int64_t i = 0; i < v_row; i += 16) {
    const F32x16 next = o == nullptr ? F32x16(0.0f) : Load(o + i);
    Store(sums->o + i, Fma(Load(sums->o + i), c1, Mul(next, c2)));
  }
}

// Merges the sink and writes the row's output.
void Finish(const TileState& state, int row, RowSums* sums) {
  const AttentionTask& task = state.task;
  const int64_t dv = task.layout.dv;
  if (task.sinks != nullptr) Merge(sums, task.sinks[state.head(row)], 1, nullptr, state.v_row);
  const F32x16 inverse = 1 / sums->l;
  float* out = task.out + state.token(row) * task.out_stride + state.head(row) * dv;
  ForEach16(dv,
            [&](int64_t i, int lanes) { StoreN(out + i, Mul(Load(sums->o + i), inverse), lanes); });
}

// Where a piece leaves a row's sums: m, l, padding, o.
float* PartialOf(const AttentionTask& task, int64_t most_rows, int64_t piece, int64_t row,
                 std::byte* partials) {
  return reinterpret_cast<float*>(partials) +
         (piece * most_rows + row) * AttentionPartialRow(task.layout);
}

}  // namespace

void Attention(const AttentionTask& task, int64_t first, int64_t last, std::byte* scratch_bytes) {
  if (first >= last) return;
  const AttentionScratch scratch(task.layout, scratch_bytes);
  AttentionWalk walk(task);
  walk.SeekItem(first);
  for (int64_t item = first; item < last; ++item, walk.Next()) {
    const AttentionTile& tile = walk.tile();
    TileState state(task, tile, scratch);
    PackQueries(state);
    RowSums sums[kAttentionTileRows];
    for (int row = 0; row < tile.rows; ++row)
      sums[row] = {0, 0, scratch.o + row * state.v_row, false};
    for (int64_t span = tile.first_span; span < tile.end_span; ++span) {
      WalkSpan(state, span);
      for (int row = 0; row < tile.rows; ++row) {
        if (!SeesSpan(state.visible[row], span)) continue;
        Merge(&sums[row], state.m[row], state.l[row], scratch.span_o + row * state.v_row,
              state.v_row);
      }
    }
    for (int row = 0; row < tile.rows; ++row) Finish(state, row, &sums[row]);
  }
}

void AttentionSpans(const AttentionTask& task, int64_t first, int64_t last, std::byte* partials,
                    std::byte* scratch_bytes) {
  if (first >= last) return;
  const AttentionScratch scratch(task.layout, scratch_bytes);
  AttentionWalk walk(task);
  walk.SeekPiece(first);
  for (int64_t piece = first; piece < last; walk.Next()) {
    const AttentionTile& tile = walk.tile();
    TileState state(task, tile, scratch);
    PackQueries(state);
    int64_t span = tile.first_span + piece - tile.first_piece;
    for (; span < tile.end_span && piece < last; ++span, ++piece) {
      WalkSpan(state, span);
      for (int row = 0; row < tile.rows; ++row) {
        float* to = PartialOf(task, walk.most_rows(), piece, row, partials);
        to[0] = state.m[row];
        to[1] = state.l[row];
        const float* o = scratch.span_o + row * state.v_row;
        for (int64_t i = 0; i < state.v_row; i += 16) Store(to + kPartialHead + i, Load(o + i));
      }
    }
  }
}

void AttentionMerge(const AttentionTask& task, int64_t first, int64_t last, std::byte* partials,
                    std::byte* scratch_bytes) {
  if (first >= last) return;
  const AttentionScratch scratch(task.layout, scratch_bytes);
  AttentionWalk walk(task);
  walk.SeekItem(first);
  for (int64_t item = first; item < last; ++item, walk.Next()) {
    const AttentionTile& tile = walk.tile();
    const TileState state(task, tile, scratch);
    for (int row = 0; row < tile.rows; ++row) {
      RowSums sums = {0, 0, scratch.o, false};
      for (int64_t span = tile.first_span; span < tile.end_span; ++span) {
        if (!SeesSpan(state.visible[row], span)) continue;
        const int64_t piece = tile.first_piece + span - tile.first_span;
        const float* from = PartialOf(task, walk.most_rows(), piece, row, partials);
        Merge(&sums, from[0], from[1], from + kPartialHead, state.v_row);
      }
      Finish(state, row, &sums);
    }
  }
}

}  // namespace lockstep::LOCKSTEP_ISA
