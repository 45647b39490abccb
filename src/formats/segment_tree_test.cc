#include "formats/segment_tree.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <random>

#include "formats/gemm_entry.h"
#include "simd/isa.h"

namespace lockstep {
namespace {

// Every subtree of the tree over leaves [first, last), from its definition.
void ForEachSubtree(int64_t first, int64_t last, const std::function<void(LeafRange)>& visit) {
  visit({first, last});
  if (last - first == 1) return;
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(last - first - 1)));
  ForEachSubtree(first, first + left, visit);
  ForEachSubtree(first + left, last, visit);
}

// Values whose sum depends on the order: magnitudes differ by up to 2^6.
std::vector<float> Values(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-3, 3);
  std::vector<float> values(count);
  for (float& v : values) v = std::ldexp(normal(random), exponent(random));
  return values;
}

TEST(SegmentTree, IsTheBinaryCounterThatKernelsUse) {
  std::mt19937 random(1);
  for (size_t count = 1; count <= 64; ++count) {
    const std::vector<float> v = Values(count, random);
    std::vector<float> counter;
    for (size_t i = 0; i < count; ++i) {
      float sum = v[i];
      for (size_t bits = i; bits & 1; bits >>= 1) sum = counter.back() + sum, counter.pop_back();
      counter.push_back(sum);
    }
    float sum = counter.back();
    for (size_t at = counter.size() - 1; at-- > 0;) sum = counter[at] + sum;
    EXPECT_EQ(sum, SegmentTree(v)) << count;
  }
}

TEST(SubtreeRoots, AreTheMaximalSubtreesInsideARun) {
  for (int64_t leaves = 1; leaves <= 20; ++leaves) {
    for (int64_t first = 0; first <= leaves; ++first) {
      for (int64_t last = first; last <= leaves; ++last) {
        // Going down from the whole tree, the first subtrees that lie inside.
        std::vector<LeafRange> expected;
        ForEachSubtree(0, leaves, [&](LeafRange node) {
          const bool inside = first <= node.first && node.last <= last;
          if (inside && (expected.empty() || expected.back().last <= node.first)) {
            expected.push_back(node);
          }
        });
        EXPECT_EQ(expected, SubtreeRoots(first, last, leaves))
            << first << " .. " << last << " of " << leaves;
      }
    }
  }
}

// Calls visit(roots) with the roots of every way to cut the leaves in `runs` runs, empty ones too.
void ForEachPartition(int64_t leaves, int runs,
                      const std::function<void(const std::vector<LeafRange>&)>& visit) {
  std::vector<LeafRange> roots;
  std::function<void(int64_t, int)> cut = [&](int64_t first, int left) {
    for (int64_t last = left == 1 ? leaves : first; last <= leaves; ++last) {
      const size_t before = roots.size();
      for (const LeafRange& root : SubtreeRoots(first, last, leaves)) roots.push_back(root);
      if (left > 1) {
        cut(last, left - 1);
      } else {
        visit(roots);
      }
      roots.resize(before);
    }
  };
  cut(0, runs);
}

TEST(CombineRoots, GivesTheBitsOfTheWholeForEveryPartition) {
  std::mt19937 random(2);
  int orders_that_matter = 0;
  for (int64_t leaves = 1; leaves <= 20; ++leaves) {
    const std::vector<float> v = Values(static_cast<size_t>(leaves), random);
    const float whole = SegmentTree(v);
    float plain = 0;
    for (float x : v) plain += x;
    orders_that_matter += plain != whole;
    for (int runs = 1; runs <= 4; ++runs) {
      ForEachPartition(leaves, runs, [&](const std::vector<LeafRange>& roots) {
        std::vector<float> values;
        for (const LeafRange& root : roots) {
          values.push_back(SegmentTree(std::span(v).subspan(
              static_cast<size_t>(root.first), static_cast<size_t>(root.last - root.first))));
        }
        std::vector<const float*> rows;
        for (const float& value : values) rows.push_back(&value);
        float sum = 0;
        CombineRootsReference(RootFold(roots, leaves), rows.data(), 1, &sum);
        ASSERT_EQ(whole, sum) << leaves << " leaves, " << roots.size() << " roots";
      });
    }
  }
  EXPECT_GT(orders_that_matter, 0);
}

struct Tree {
  int64_t leaves;
  std::vector<int64_t> cuts;  // between runs
};

TEST(CombineRoots, KernelsEqualTheReferenceAndMayWriteOverARow) {
  std::mt19937 random(3);
  for (const Tree& tree : {Tree{1, {}},
                           {2, {1}},
                           {7, {3, 3, 5}},
                           {64, {1, 31, 63}},
                           {300, {77, 299}},
                           {32767, {1, 20001}}}) {
    std::vector<LeafRange> roots;
    std::vector<int64_t> cuts = tree.cuts;
    cuts.push_back(tree.leaves);
    int64_t first = 0;
    for (int64_t last : cuts) {
      for (const LeafRange& root : SubtreeRoots(first, last, tree.leaves)) roots.push_back(root);
      first = last;
    }
    const RootFold fold(roots, tree.leaves);
    for (size_t count : {1, 15, 16, 17, 63, 64, 65, 200}) {
      std::vector<std::vector<float>> values;
      for (size_t r = 0; r < roots.size(); ++r) {
        values.push_back(Values(count, random));
        values.back().push_back(12345.0f);
      }
      std::vector<const float*> rows;
      for (const auto& row : values) rows.push_back(row.data());
      std::vector<float> expected(count + 1, 12345.0f);
      CombineRootsReference(fold, rows.data(), static_cast<int64_t>(count), expected.data());
      for (Isa isa : AvailableIsas()) {
        for (size_t over : {size_t{0}, values.size() - 1}) {
          const std::vector<float> kept = values[over];
#define LOCKSTEP_TRY(name, enumerator) \
  if (isa == Isa::enumerator)          \
    name::CombineRoots(fold, rows.data(), static_cast<int64_t>(count), values[over].data());
          LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_TRY)
#undef LOCKSTEP_TRY
          EXPECT_EQ(0,
                    std::memcmp(expected.data(), values[over].data(), (count + 1) * sizeof(float)))
              << IsaName(isa) << ' ' << tree.leaves << " leaves, " << count << " columns";
          std::ranges::copy(kept, values[over].begin());
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
