#include "ops/ngram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/dot_gate.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::FirstDifference;

constexpr int32_t kEnd = 2;
constexpr int64_t kBack = 3;

// Previous tokens by the book.
std::vector<float> Expected(const std::vector<int32_t>& tokens, size_t at) {
  std::vector<float> row;
  bool ended = false;
  for (size_t j = 1; j <= kBack; ++j) {
    ended |= j > at || tokens[at - j] == kEnd;
    row.push_back(static_cast<float>(ended ? kEnd : tokens[at - j]));
  }
  return row;
}

TEST(PreviousTokens, EndWithATextHoweverTokensArriveAndAreDropped) {
  std::mt19937 random(1);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back(static_cast<int32_t>(random() % 6));
  std::vector<float> memory(1024, std::nanf(""));
  RecurrentSlot slot{reinterpret_cast<std::byte*>(memory.data())};
  const OperationPtr op = MakePreviousTokens(kBack, kEnd);
  for (int step = 0; step < 300; ++step) {
    // From the checkpoint to where the slot stands, or anew.
    const auto from =
        step % 40 == 0
            ? int64_t{0}
            : slot.checkpoint +
                  static_cast<int64_t>(random() %
                                       static_cast<uint64_t>(slot.position - slot.checkpoint + 1));
    const int64_t count = std::min<int64_t>(1 + static_cast<int64_t>(random() % 40), 200 - from);
    if (count < 1) continue;
    if (from == 0) slot.position = slot.checkpoint = 0;
    std::vector<AttentionRow> places;
    std::vector<int32_t> index;
    for (int64_t t = 0; t < count; ++t) {
      places.push_back({nullptr, from + t, &slot});
      index.push_back(static_cast<int32_t>(t));
    }
    std::vector<float> out(static_cast<size_t>(count * kBack));
    const std::vector<Operand> in = {std::monostate{}, RecurrentView{16, 16, 0, 16, 32}},
                               results = {Rows{out.data(), kBack}};
    FaultLog faults(count);
    for (int member : {0, 1}) {
      op->Run({KernelsFor(BestIsa()),
               member,
               2,
               Split::kOwn,
               in,
               results,
               {std::span(tokens).subspan(static_cast<size_t>(from), static_cast<size_t>(count)),
                places},
               index,
               {},
               &faults,
               0});
    }
    for (int64_t t = 0; t < count; ++t) {
      const std::vector<float> row(out.begin() + t * kBack, out.begin() + (t + 1) * kBack);
      ASSERT_EQ(row, Expected(tokens, static_cast<size_t>(from + t))) << from << " + " << t;
    }
    ForEachRun(places, [](const RecurrentRun& run) {
      run.slot->checkpoint = run.CheckpointAfter();
      run.slot->position = run.start + run.count;
    });
  }
}

TEST(NgramEmbed, LooksUpHashesOfEachOrder) {
  constexpr int64_t kRows = 40;
  std::vector<float> table(kRows);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  const uint64_t big = (uint64_t{1} << 62) + 12345;
  const NgramSettings settings{{big, 5, 7}, {11, 13, 3, 13}, {0, 11, 24, 27}, 1};
  std::vector<float> previous = {4, 9, 2, 2}, out(8);
  const std::vector<int32_t> tokens = {3, 380};
  const std::vector<Operand> in = {std::monostate{}, Rows{previous.data(), 2},
                                   Table{FindFormat("F32"),
                                         reinterpret_cast<std::byte*>(table.data()), kRows, 1}},
                             results = {Rows{out.data(), 4}};
  std::vector<AttentionRow> places(2);
  const std::vector<int32_t> index = {0, 1};
  FaultLog faults(2);
  MakeNgramEmbed(settings)->Run({KernelsFor(BestIsa()),
                                 0,
                                 1,
                                 Split::kTokens,
                                 in,
                                 results,
                                 {tokens, places},
                                 index,
                                 {},
                                 &faults,
                                 0});
  for (size_t t = 0; t < 2; ++t) {
    const uint64_t two =
        static_cast<uint64_t>(tokens[t]) * big ^ static_cast<uint64_t>(previous[2 * t]) * 5;
    const uint64_t three = two ^ static_cast<uint64_t>(previous[2 * t + 1]) * 7;
    const std::vector<float> expected = {
        static_cast<float>(two % 11), static_cast<float>(11 + two % 13),
        static_cast<float>(24 + three % 3), static_cast<float>(27 + three % 13)};
    EXPECT_EQ(std::vector<float>(out.begin() + static_cast<int64_t>(4 * t),
                                 out.begin() + static_cast<int64_t>(4 * t + 4)),
              expected);
  }
}

TEST(DotGate, KernelsEqualReference) {
  for (int64_t n : testing::Sizes()) {
    for (const testing::Row& row : testing::Rows(n)) {
      const std::vector<float> other = testing::RandomRow(n, 1, 7);
      const float expected = DotRowsReference(row.values.data(), other.data(), n);
      for (Isa isa : AvailableIsas()) {
        const float found = KernelsFor(isa).dot_rows(row.values.data(), other.data(), n);
        ASSERT_EQ(FirstDifference<float>({found}, {expected}), -1)
            << IsaName(isa) << ' ' << n << ' ' << row.name;
      }
    }
  }
}

TEST(DotGate, KeepsTheSignOfTheProduct) {
  EXPECT_EQ(DotGate(0, 1), 0.5f);
  EXPECT_GT(DotGate(1e-20f, 1), 0.5f);
  EXPECT_LT(DotGate(-1e-20f, 1), 0.5f);
  // 1 / (1 + e^-2), a quotient and an exponential away.
  EXPECT_NEAR(DotGate(8, 0.5f), 0.8807970779778823, 4 * 0x1p-24);
  EXPECT_NEAR(DotGate(-8, 0.5f), 1 - 0.8807970779778823, 4 * 0x1p-24);
}

}  // namespace
}  // namespace lockstep
