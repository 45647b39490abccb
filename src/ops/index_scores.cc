#include "ops/index_scores.h"

#include <cmath>
#include <vector>

#include "base/checked.h"
#include "ops/attention_tiles.h"

namespace lockstep {

void IndexScoresReference(const IndexScoresTask& task, int64_t first, int64_t count, float* scores,
                          std::byte*) {
  const int64_t d = task.layout.dk;
  std::vector<float> key(static_cast<size_t>(d));
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* page = task.pages[task.layout.EntryPage(first + i)];
    ReadKey(task.layout, page + task.k_offset, task.layout.EntryAt(first + i), key.data());
    float score = 0;
    for (int64_t h = 0; h < task.heads; ++h) {
      float dot = 0;
      for (int64_t j = 0; j < d; ++j)
        dot = std::fma(task.q[h * d + j], key[static_cast<size_t>(j)], dot);
      const float scaled = task.scale * dot;
      score = std::fma(task.weights == nullptr ? 1.0f : task.weights[h], scaled > 0 ? scaled : 0.0f,
                       score);
    }
    scores[i] = score;
  }
}

IndexScratch::IndexScratch(const KvLayout& layout, std::byte* at) {
  auto take = [&](int64_t size) {
    std::byte* piece = at + bytes;
    bytes += static_cast<size_t>(RoundUp(size, 64));
    return piece;
  };
  auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count * 4)); };
  q = floats(kAttentionGroupRows * layout.dk);
  scores = floats(kAttentionGroupRows * kAttentionBlock);
  keys = floats(kAttentionBlock * RoundUp(layout.dk, kKvBlock));
  rows = take(kAttentionBlock * layout.k_row_bytes());
}

size_t IndexScratchBytes(const KvLayout& layout) { return IndexScratch(layout, nullptr).bytes; }

}  // namespace lockstep
