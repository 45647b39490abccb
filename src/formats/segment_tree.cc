#include "formats/segment_tree.h"

#include <algorithm>
#include <bit>

namespace lockstep {

int64_t SubtreeEnd(int64_t first, int64_t last, int64_t leaves) {
  int64_t size = 1;
  while (size < leaves - first && first % (2 * size) == 0 &&
         std::min(first + 2 * size, leaves) <= last) {
    size *= 2;
  }
  return std::min(first + size, leaves);
}

std::vector<LeafRange> SubtreeRoots(int64_t first, int64_t last, int64_t leaves) {
  std::vector<LeafRange> roots;
  while (first < last) {
    roots.push_back({first, SubtreeEnd(first, last, leaves)});
    first = roots.back().last;
  }
  return roots;
}

float SegmentTree(std::span<const float> values) {
  if (values.size() == 1) return values[0];
  const size_t left = std::bit_floor(values.size() - 1);
  return SegmentTree(values.first(left)) + SegmentTree(values.subspan(left));
}

RootFold::RootFold(std::span<const LeafRange> roots, int64_t leaves) {
  std::vector<LeafRange> open;
  for (const LeafRange& root : roots) {
    open.push_back(root);
    uint8_t merges = 0;
    while (open.size() > 1) {
      const LeafRange left = open[open.size() - 2], right = open.back();
      if (SubtreeEnd(left.first, right.last, leaves) != right.last) break;
      open.pop_back();
      open.back() = {left.first, right.last};
      ++merges;
    }
    merges_.push_back(merges);
  }
}

void CombineRootsReference(const RootFold& fold, const float* const* rows, int64_t count,
                           float* out) {
  for (int64_t c = 0; c < count; ++c) {
    std::vector<float> open;
    for (int64_t r = 0; r < fold.roots(); ++r) {
      float value = rows[r][c];
      for (int merge = 0; merge < fold.merges()[static_cast<size_t>(r)]; ++merge) {
        value = open.back() + value;
        open.pop_back();
      }
      open.push_back(value);
    }
    out[c] = open[0];
  }
}

}  // namespace lockstep
