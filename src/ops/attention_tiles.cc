#include "ops/attention_tiles.h"

#include <algorithm>

#include "base/checked.h"

namespace lockstep {

namespace {

// Tiles are whole groups of every instruction set's usual size.
constexpr int64_t kTileUnit = 12;

}  // namespace

VisibleRange VisiblePositions(const AttentionTask& task, int64_t token) {
  const int64_t position = task.rows[token].position;
  const int64_t begin =
      task.window == 0 ? task.first : std::max(task.first, position - task.window + 1);
  if (task.seen_end == SeenEnd::kBefore) return {begin, position};
  if (task.seen_end == SeenEnd::kOwn) return {begin, position + 1};
  int64_t last = token;
  while (last + 1 < task.tokens && task.rows[last + 1].pages == task.rows[token].pages) ++last;
  return {begin, task.rows[last].position + 1};
}

AttentionWalk::AttentionWalk(const AttentionTask& task)
    : task_(task), rows_(task.tokens * task.heads_per_kv) {
  if (rows_ == 0) return;
  StartHead(0);
  while (tile_.kv_head == 0) {
    ++tiles_;
    pieces_ += tile_.end_span - tile_.first_span;
    most_rows_ = std::max(most_rows_, tile_.rows);
    Next();
  }
  StartHead(0);
}

void AttentionWalk::StartHead(int64_t kv_head) {
  tile_.kv_head = kv_head;
  tile_.first_piece = kv_head * pieces_;
  StartRun(0);
  StartTile(0);
}

void AttentionWalk::StartRun(int64_t token) {
  int64_t end = token + 1;
  while (end < task_.tokens && task_.rows[end].pages == task_.rows[token].pages) ++end;
  run_end_ = end * task_.heads_per_kv;
  const int64_t rows = run_end_ - token * task_.heads_per_kv;
  const int64_t tiles = CeilDiv(rows, kAttentionTileRows);
  tile_rows_ = RoundUp(CeilDiv(rows, tiles), kTileUnit);
}

void AttentionWalk::StartTile(int64_t row) {
  tile_.first_row = row;
  tile_.rows = std::min(tile_rows_, run_end_ - row);
  const int64_t token = row / task_.heads_per_kv;
  const int64_t last_token = (row + tile_.rows - 1) / task_.heads_per_kv;
  VisibleRange all = VisiblePositions(task_, token);
  for (int64_t t = token + 1; t <= last_token; ++t) {
    const VisibleRange seen = VisiblePositions(task_, t);
    all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
  }
  tile_.first_span = all.begin / kAttentionSpan;
  tile_.end_span = CeilDiv(all.end, kAttentionSpan);
}

void AttentionWalk::Next() {
  tile_.first_piece += tile_.end_span - tile_.first_span;
  const int64_t row = tile_.first_row + tile_.rows;
  if (row == rows_) {
    const int64_t piece = tile_.first_piece;
    StartHead(tile_.kv_head + 1);
    tile_.first_piece = piece;
    return;
  }
  if (row == run_end_) StartRun(row / task_.heads_per_kv);
  StartTile(row);
}

void AttentionWalk::SeekItem(int64_t item) {
  StartHead(item / tiles_);
  for (int64_t i = item % tiles_; i > 0; --i) Next();
}

void AttentionWalk::SeekPiece(int64_t piece) {
  StartHead(piece / pieces_);
  while (tile_.first_piece + tile_.end_span - tile_.first_span <= piece) Next();
}

int64_t AttentionItems(const AttentionTask& task) { return AttentionWalk(task).items(); }
int64_t AttentionPieces(const AttentionTask& task) { return AttentionWalk(task).pieces(); }

int64_t AttentionPartialRow(const KvLayout& layout) { return kPartialHead + layout.v_row(); }

size_t AttentionPartialBytes(const AttentionTask& task) {
  const AttentionWalk walk(task);
  const int64_t floats = walk.pieces() * walk.most_rows() * AttentionPartialRow(task.layout);
  return static_cast<size_t>(floats) * sizeof(float);
}

AttentionScratch::AttentionScratch(const KvLayout& layout, std::byte* at) {
  auto take = [&](int64_t floats) {
    float* piece = reinterpret_cast<float*>(at + bytes);
    bytes += static_cast<size_t>(RoundUp(floats, 16)) * sizeof(float);
    return piece;
  };
  const int64_t v_row = layout.v_row();
  const bool v_blocks = KvKindOf(*layout.v_type) == KvKind::kBlocks;
  q = take(kAttentionPaddedRows * layout.dk);
  scores = take(kAttentionGroupRows * kAttentionBlock);
  span_o = take(kAttentionPaddedRows * v_row);
  o = take(kAttentionPaddedRows * v_row);
  keys = take(layout.keys_in_rows() ? kAttentionBlock * RoundUp(layout.dk, kKvBlock) : 0);
  values = take(v_blocks ? kAttentionBlock * v_row : 0);
}

size_t AttentionScratchBytes(const KvLayout& layout, int64_t) {
  return AttentionScratch(layout, nullptr).bytes;
}

}  // namespace lockstep
