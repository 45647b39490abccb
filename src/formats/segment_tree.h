// The tree in which the segments of a summed axis meet, and how ranks share it.
//
// Leaves 0 .. n-1 meet in the *left-complete* binary tree: the left half of a node is the largest
// power of two below its number of leaves. That is the binary tree over aligned runs of leaves
// ([i 2^j, (i + 1) 2^j)) cut off at n, where a node whose right half is empty is its left half. So
// any contiguous run of leaves is a few whole subtrees; a rank sums those it owns, and their roots
// meet as in the whole tree: a split, however uneven, changes no bit (docs/numerics.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Most segments a summed axis is cut into.
inline constexpr int64_t kMaxSegments = 64;
// Depth of the binary counter that folds kMaxSegments leaves, one more for the running sum.
inline constexpr int kTreeLevels = 7;
// Most leaves of a tree whose roots are combined: segments, or other terms such as experts.
inline constexpr int64_t kMaxLeaves = int64_t{1} << 15;

// Leaves [first, last) of a tree.
struct LeafRange {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const LeafRange&) const = default;
};

// The end of the largest subtree of the tree over `leaves` leaves that starts at leaf `first` and
// ends no later than `last`; 0 <= first < last <= leaves.
int64_t SubtreeEnd(int64_t first, int64_t last, int64_t leaves);

// The maximal subtrees inside [first, last), ascending: the roots that the owner of these leaves
// gives. None where the run is empty.
std::vector<LeafRange> SubtreeRoots(int64_t first, int64_t last, int64_t leaves);

// Sums values[0 .. count), count > 0, in the left-complete binary tree.
float SegmentTree(std::span<const float> values);

// How the roots of consecutive runs that together hold every leaf meet in the whole tree's value.
class RootFold {
 public:
  // roots: subtrees of the tree over `leaves` leaves (1 .. kMaxLeaves), ascending, covering it.
  RootFold(std::span<const LeafRange> roots, int64_t leaves);

  // After each root, how many times the two latest values become their sum.
  std::span<const uint8_t> merges() const { return merges_; }
  int64_t roots() const { return std::ssize(merges_); }

 private:
  std::vector<uint8_t> merges_;
};

// out[c] = the whole tree's value from rows[r][c], the roots' values, for c in 0 .. count. `out`
// may be one of the rows. rows: [roots] pointers to [count]. Kernels: lockstep::<isa>::CombineRoots.
using CombineRootsFn = void(const RootFold& fold, const float* const* rows, int64_t count,
                            float* out);
CombineRootsFn CombineRootsReference;

}  // namespace lockstep
