// How attention's work is cut into tiles, and a thread's scratch into buffers. Shared by the
// reference and the kernels; everything is compiled once.
#pragma once

#include <cstdint>

#include "ops/attention.h"

namespace lockstep {

// Query rows of a tile, at most: enough to meet each load of K and V with many products, few enough
// for their sums to stay in the second-level cache.
inline constexpr int64_t kAttentionTileRows = 48;
// Kernels work on groups of up to this many rows and may pad a tile to whole groups.
inline constexpr int64_t kAttentionGroupRows = 24;
inline constexpr int64_t kAttentionPaddedRows = kAttentionTileRows + kAttentionGroupRows;

// One item. Query rows of a KV head are numbered token * r + head, over the whole batch.
struct AttentionTile {
  int64_t kv_head = 0;
  int64_t first_row = 0, rows = 0;
  int64_t first_span = 0, end_span = 0;  // spans that hold what the rows see
  int64_t first_piece = 0;               // pieces are numbered through all items
};

// The positions that a row sees: [begin, end).
struct VisibleRange {
  int64_t begin = 0, end = 0;
};
VisibleRange VisiblePositions(const AttentionTask& task, int64_t token);

// Walks the items of a task. The task outlives the walk.
class AttentionWalk {
 public:
  // Stands on item 0, where there is one.
  explicit AttentionWalk(const AttentionTask& task);

  int64_t items() const { return task_.layout.kv_heads * tiles_; }
  int64_t pieces() const { return task_.layout.kv_heads * pieces_; }
  // Rows of the largest tile.
  int64_t most_rows() const { return most_rows_; }

  const AttentionTile& tile() const { return tile_; }
  void Next();
  // Goes to an item, or to the item that has a piece. Only with an index that is there.
  void SeekItem(int64_t item);
  void SeekPiece(int64_t piece);

 private:
  void StartHead(int64_t kv_head);
  void StartRun(int64_t token);
  void StartTile(int64_t row);

  const AttentionTask& task_;
  int64_t rows_;        // of one KV head
  int64_t tiles_ = 0;   // of one KV head
  int64_t pieces_ = 0;  // of one KV head
  int64_t most_rows_ = 0;
  int64_t run_end_ = 0;    // row after the sequence's last
  int64_t tile_rows_ = 0;  // of a tile of this sequence, the last may have fewer
  AttentionTile tile_;
};

// A thread's buffers, cut from scratch. P is kAttentionPaddedRows, v_row the padded width of V.
struct AttentionScratch {
  float* q;          // [P * dk]
  float* scores;     // [kAttentionGroupRows, 64]
  float* span_o;     // [P, v_row], sums of the span in hand
  float* o;          // [P, v_row], of the spans before it
  float* keys;       // [4, dk, 16], K that lies by rows, woven
  float* values;     // [64, v_row], V of blocks taken apart
  size_t bytes = 0;  // of all

  AttentionScratch(const KvLayout& layout, std::byte* at);
};

// Floats of one row in a piece's result: m, l and padding, then o: [v_row].
inline constexpr int64_t kPartialHead = 16;
int64_t AttentionPartialRow(const KvLayout& layout);

}  // namespace lockstep
