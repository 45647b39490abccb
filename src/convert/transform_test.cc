#include "convert/transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

// Numbers 0, 1, 2 ... of a shape.
Values Counting(Values::Dims dims) {
  uint64_t size = 1;
  for (uint64_t dim : dims) size *= dim;
  std::vector<float> numbers(size);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  return Values::Of("counting", std::move(dims), std::move(numbers));
}

std::vector<float> All(const Values& values) {
  std::vector<float> numbers(values.size());
  values.Read(0, numbers.size(), numbers.data());
  return numbers;
}

struct Case {
  const char* name;
  Values values;
  Values::Dims dims;
  std::vector<float> numbers;
};

std::vector<Case> Cases() {
  return {
      {"Slice", Slice(Counting({4, 2}), 0, 1, 2), {2, 2}, {2, 3, 4, 5}},
      {"SliceWithStep", Slice(Counting({4, 2}), 0, 1, 2, 2), {2, 2}, {2, 3, 6, 7}},
      {"SliceOfColumns", Slice(Counting({2, 4}), 1, 1, 2), {2, 2}, {1, 2, 5, 6}},
      {"SliceOfTheMiddle", Slice(Counting({2, 3, 2}), 1, 2, 1), {2, 1, 2}, {4, 5, 10, 11}},
      {"Part", Part(Counting({2, 4}), 1, 1, 2), {2, 2}, {2, 3, 6, 7}},
      {"Pick",
       Pick(Counting({3, 2}), 0, 4, [](uint64_t i) { return 2 - i % 3; }),
       {4, 2},
       {4, 5, 2, 3, 0, 1, 4, 5}},
      {"PairHalves", PairHalves(Counting({8}), 2), {8}, {0, 2, 1, 3, 4, 6, 5, 7}},
      {"PairHalvesOfMatrices", PairHalves(Counting({4, 2}), 1), {4, 2}, {0, 1, 4, 5, 2, 3, 6, 7}},
      {"PairLastHalves", PairLastHalves(Counting({6}), 1, 4), {6}, {0, 1, 2, 4, 3, 5}},
      {"Transpose", Transpose(Counting({2, 3})), {3, 2}, {0, 3, 1, 4, 2, 5}},
      {"TransposeOfEach", Transpose(Counting({2, 2, 2})), {2, 2, 2}, {0, 2, 1, 3, 4, 6, 5, 7}},
      {"Reshape", Reshape(Counting({2, 3}), {3, 1, 2}), {3, 1, 2}, {0, 1, 2, 3, 4, 5}},
      {"Stack", Stack({Counting({2}), Counting({2}), Counting({2})}), {3, 2}, {0, 1, 0, 1, 0, 1}},
      {"Concat", Concat({Counting({1, 2}), Counting({2, 2})}), {3, 2}, {0, 1, 0, 1, 2, 3}},
      {"Map", Map(Counting({3}), [](float x) { return -x; }), {3}, {-0.0f, -1, -2}},
      {"Composed",
       Transpose(PairHalves(Slice(Counting({6, 2}), 0, 2, 4), 1)),
       {2, 4},
       {4, 8, 6, 10, 5, 9, 7, 11}},
  };
}

TEST(Transform, GivesTheSameNumbersInPiecesOfAnySize) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(c.values.dims(), c.dims);
    ASSERT_EQ(All(c.values), c.numbers);
    for (uint64_t begin = 0; begin < c.values.size(); ++begin) {
      for (uint64_t count = 1; begin + count <= c.values.size(); ++count) {
        std::vector<float> piece(count);
        c.values.Read(begin, count, piece.data());
        ASSERT_TRUE(
            std::equal(piece.begin(), piece.end(), c.numbers.begin() + static_cast<int64_t>(begin)))
            << begin << " " << count;
      }
    }
  }
}

TEST(Transform, RefusesShapesThatDoNotFit) {
  const std::pair<const char*, void (*)()> refused[] = {
      {"entries 3, step 1, to the 2th on axis 0", [] { Slice(Counting({4}), 0, 3, 2); }},
      {"entries 0, step", [] { Slice(Counting({4}), 0, 0, UINT64_MAX, UINT64_MAX); }},
      {"entries 0, step", [] { Slice(Counting({4}), 0, 0, 0); }},
      {"at least 2 dimensions", [] { Slice(Counting({4}), 1, 0, 1); }},
      {"a multiple of 3 on axis 0", [] { Part(Counting({4}), 0, 0, 3); }},
      {"rows of 3 heads", [] { PairHalves(Counting({8}), 3); }},
      {"rows of 0 heads", [] { PairHalves(Counting({8}), 0); }},
      {"rows of 4 heads, 1 of each", [] { PairHalves(Counting({4}), 4); }},
      {"at least 2 dimensions", [] { Transpose(Counting({4})); }},
      {"numbers for a shape of [5]", [] { Reshape(Counting({4}), {5}); }},
      {"as in counting a shape of [2]",
       [] {
         Stack({Counting({2}), Counting({3})});
       }},
      {"as in counting a shape of [1, 2]",
       [] {
         Concat({Counting({1, 2}), Counting({1, 3})});
       }},
  };
  for (const auto& [message, make] : refused) {
    const std::string found = test::MessageOf(make);
    EXPECT_NE(found.find(message), found.npos) << message << " | " << found;
  }
}

}  // namespace
}  // namespace lockstep
