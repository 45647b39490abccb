#include "ops/pool_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/hyper_connections.h"
#include "ops/testing/rows.h"
#include "ops/weighted_rows.h"

namespace lockstep {
namespace {

using testing::Fenced;
using testing::FirstDifference;
using testing::kInf;
using testing::kNan;
using testing::RandomRow;

std::vector<float> ResultOf(const Operation& op, const std::vector<Operand>& in,
                            const std::vector<AttentionRow>& places, int64_t width, int members = 1,
                            Isa isa = BestIsa()) {
  const auto tokens = static_cast<int64_t>(places.size());
  std::vector<float> y(static_cast<size_t>(tokens * width), kNan);
  const std::vector<Operand> out =
      width == 0 ? std::vector<Operand>{} : std::vector<Operand>{Rows{y.data(), width}};
  std::vector<std::byte> scratch(op.scratch_bytes(in, tokens) + 64);
  auto* aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  FaultLog faults(tokens);
  for (int member = 0; member < members; ++member) {
    op.Run({KernelsFor(isa),
            member,
            members,
            op.split(),
            in,
            out,
            {{}, places},
            {},
            {aligned, scratch.size() - 64},
            &faults,
            0});
  }
  return y;
}

TEST(PoolRows, KernelsEqualReference) {
  for (int64_t n : {1, 2, 4, 8, 128}) {
    for (int64_t d : {1, 15, 16, 33, 512}) {
      for (const testing::Row& row : testing::Rows(n * d)) {
        const std::vector<float> v = RandomRow(n * d, 2, 9);
        for (const auto& [values, gates] : {std::pair(v, row.values), std::pair(row.values, v)}) {
          std::vector<float> expected(static_cast<size_t>(d));
          PoolRowsReference(values.data(), gates.data(), n, d, expected.data());
          for (Isa isa : AvailableIsas()) {
            Fenced<float> found(static_cast<size_t>(d));
            KernelsFor(isa).pool_rows(values.data(), gates.data(), n, d, found.data());
            ASSERT_TRUE(found.intact());
            ASSERT_EQ(FirstDifference(expected, found.values()), -1)
                << IsaName(isa) << " " << n << " x " << d << ", " << row.name;
          }
        }
      }
    }
  }
}

TEST(PoolRows, GivesTheRowOfAGateFarAboveTheOthers) {
  const std::vector<float> v = {1, 2, 3, 4, 5, 6}, g = {-200, 0, 0, 0, 0, -200};
  std::vector<float> y(2);
  PoolRowsReference(v.data(), g.data(), 3, 2, y.data());
  EXPECT_EQ(y[0], 4);  // of rows 1 and 2: the mean of 3 and 5
  EXPECT_EQ(y[1], 3);  // of rows 0 and 1: the mean of 2 and 4
}

TEST(MixRows, KernelsEqualReference) {
  for (int64_t n : {0, 1, 4}) {
    for (int64_t d : {1, 16, 37, 130}) {
      for (const testing::Row& row : testing::Rows(std::max<int64_t>(n, 1) * d)) {
        const std::vector<float> w = RandomRow(16, 1, 3), first = RandomRow(d, 1, 4);
        for (bool with_first : {false, true}) {
          const WeightedRows rows{
              with_first ? first.data() : nullptr, 0.75f, row.values.data(), d, w.data(), 3, n};
          std::vector<float> expected(static_cast<size_t>(d));
          MixRowsReference(rows, d, expected.data());
          for (Isa isa : AvailableIsas()) {
            Fenced<float> found(static_cast<size_t>(d));
            KernelsFor(isa).mix_rows(rows, d, found.data());
            ASSERT_TRUE(found.intact());
            ASSERT_EQ(FirstDifference(expected, found.values()), -1)
                << IsaName(isa) << " " << n << " x " << d << ", " << row.name;
          }
        }
      }
    }
  }
}

// Straight from the definition, in double. Every division and sum errs by a few units in the last place and a round of them at most doubles what
// came before by its own few: 20 rounds of 2 (n + 3) roundings stay below 2^-24 * 20 * 14 * 2, exp's 2 units within.
TEST(HyperWeights, AreThoseOfTheDefinition) {
  constexpr int64_t kStreams = 4;
  const HyperConnections hyper{.streams = kStreams, .eps = 1e-3f, .iterations = 20};
  const std::vector<float> mixes = RandomRow(hyper.weights(), 2, 1),
                           base = RandomRow(hyper.weights(), 1, 2), scale = {0.5f, 1.5f, 0.8f};
  std::vector<float> found = mixes;
  HyperWeights(hyper, base, scale, found.data());
  double comb[kStreams][kStreams];
  const auto mix = [&](int64_t i, size_t part) {
    return double{mixes[static_cast<size_t>(i)]} * scale[part] + base[static_cast<size_t>(i)];
  };
  constexpr double kBound = 4e-5;
  for (int64_t j = 0; j < kStreams; ++j) {
    EXPECT_NEAR(found[j], 1 / (1 + std::exp(-mix(j, 0))) + 1e-3f, kBound);
    EXPECT_NEAR(found[kStreams + j], 2 / (1 + std::exp(-mix(kStreams + j, 1))), kBound);
  }
  for (int64_t i = 0; i < kStreams; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < kStreams; ++j)
      sum += comb[i][j] = std::exp(mix(2 * kStreams + i * kStreams + j, 2));
    for (double& x : comb[i]) x = x / sum + 1e-3f;
  }
  const auto columns = [&] {
    for (int64_t j = 0; j < kStreams; ++j) {
      double sum = 1e-3f;
      for (int64_t i = 0; i < kStreams; ++i) sum += comb[i][j];
      for (int64_t i = 0; i < kStreams; ++i) comb[i][j] /= sum;
    }
  };
  columns();
  for (int round = 1; round < 20; ++round) {
    for (auto& row : comb) {
      double sum = 1e-3f;
      for (double x : row) sum += x;
      for (double& x : row) x /= sum;
    }
    columns();
  }
  for (int64_t i = 0; i < kStreams; ++i) {
    for (int64_t j = 0; j < kStreams; ++j)
      EXPECT_NEAR(found[2 * kStreams + i * kStreams + j], comb[i][j], kBound);
  }
}

TEST(HyperConnections, CollapseAndExpandAsTheWeightsSay) {
  const HyperConnections hyper{.streams = 2, .eps = 0, .iterations = 1};
  std::vector<float> streams = {1, 2, 3, 10, 20, 30}, weights = {0.5f, 2, 3, 4, 0.25f, 0.5f, 2, 8},
                     branch = {100, 200, 300};
  const std::vector<AttentionRow> places(1);
  const std::vector<Operand> in = {Rows{streams.data(), 6}, Rows{weights.data(), 8}};
  EXPECT_EQ(ResultOf(*MakeHyperCollapse(hyper), in, places, 3),
            (std::vector<float>{20.5f, 41, 61.5f}));
  // comb: stream 0 goes to 0 by 1/4 and to 1 by 1/2, stream 1 by 2 and by 8.
  EXPECT_EQ(ResultOf(*MakeHyperExpand(hyper), {in[0], in[1], Rows{branch.data(), 3}}, places, 6),
            (std::vector<float>{320.25f, 640.5f, 960.75f, 480.5f, 961, 1441.5f}));
  EXPECT_EQ(ResultOf(*MakeStreamMean(2), {in[0]}, places, 3),
            (std::vector<float>{5.5f, 11, 16.5f}));
}

// Raw rows of positions 0 .. 63 in one page.
struct RawRows {
  KvLayout layout;
  StateView view;
  std::vector<std::byte> bytes;
  const std::byte* pages[1];
  std::vector<float> raw;

  RawRows(const Format& format, int64_t width) : layout{1, width, 0, &format, &format, true} {
    view = {&layout, 0, 0};
    bytes.resize(static_cast<size_t>(layout.k_bytes()));
    pages[0] = bytes.data();
    raw = RandomRow(64 * width, 1, 11);
    for (int64_t p = 0; p < 64; ++p) WriteKey(layout, raw.data() + p * width, bytes.data(), p);
  }
  RawRows(const RawRows&) = delete;
};

TEST(PoolKeys, PoolsAWholeWindowAndWhatOverlapsIt) {
  constexpr int64_t kPool = 4, kDims = 5;
  for (bool overlap : {false, true}) {
    const PoolKeysSettings settings{kPool, kDims, overlap};
    const int64_t w = settings.channels();
    const RawRows rows(*FindFormat("F32"), 2 * w);
    const std::vector<float> bias = RandomRow(kPool * w, 1, 12);
    std::vector<AttentionRow> places;
    for (int64_t p = 0; p < 20; ++p) places.push_back({rows.pages, p});
    const std::vector<Operand> in = {std::monostate(), rows.view, std::span<const float>(bias)};
    const std::vector<float> found = ResultOf(*MakePoolKeys(settings), in, places, kDims, 3);
    for (int64_t p = 0; p < 20; ++p) {
      std::vector<float> expected(kDims);
      if ((p + 1) % kPool == 0) {
        std::vector<float> values, gates;
        const auto take = [&](int64_t position, int64_t channel) {
          for (int64_t c = 0; c < kDims; ++c) {
            values.push_back(rows.raw[static_cast<size_t>(position * 2 * w + channel + c)]);
            gates.push_back(rows.raw[static_cast<size_t>(position * 2 * w + w + channel + c)] +
                            bias[static_cast<size_t>(position % kPool * w + channel + c)]);
          }
        };
        for (int64_t q = p + 1 - 2 * kPool; overlap && p >= kPool && q <= p - kPool; ++q)
          take(q, 0);
        for (int64_t q = p + 1 - kPool; q <= p; ++q) take(q, w - kDims);
        PoolRowsReference(values.data(), gates.data(), std::ssize(values) / kDims, kDims,
                          expected.data());
      }
      ASSERT_EQ(
          FirstDifference(expected, {found.begin() + p * kDims, found.begin() + (p + 1) * kDims}),
          -1)
          << p;
    }
    // A token alone gives what it gives among others.
    const std::vector<float> alone =
        ResultOf(*MakePoolKeys(settings), in, {{rows.pages, 11}}, kDims);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), found.begin() + 11 * kDims));
  }
}

TEST(PoolKeys, WithoutGatesAreMeans) {
  const PoolKeysSettings settings{.pool = 4, .d = 3, .gated = false};
  const RawRows rows(*FindFormat("F32"), 3);
  const std::vector<float> found =
      ResultOf(*MakePoolKeys(settings), {std::monostate(), rows.view}, {{rows.pages, 7}}, 3);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(found[c],
              (((rows.raw[12 + c] + rows.raw[15 + c]) + rows.raw[18 + c]) + rows.raw[21 + c]) / 4);
  }
}

TEST(KvAppend, WritesAnEntryWhereAPoolIsWhole) {
  const Format& f16 = *FindFormat("F16");
  for (int64_t pool : {4, 16, 64}) {
    const KvLayout layout{1, 24, 24, &f16, &f16, true, pool};
    std::vector<std::byte> page(static_cast<size_t>(layout.k_bytes()));
    const std::byte* pages[] = {page.data()};
    std::vector<float> keys = RandomRow(64 * 24, 1, 5);
    for (int64_t p = 0; p < 64; ++p)
      keys[static_cast<size_t>((p + 1) % pool != 0 ? p * 24 : 0)] =
          (p + 1) % pool != 0 ? kNan : keys[0];
    std::vector<AttentionRow> places;
    for (int64_t p = 0; p < 64; ++p) places.push_back({pages, p});
    ResultOf(*MakeKvAppendKeys(), {Rows{keys.data(), 24}, StateView{&layout, 0, 0}}, places, 0, 3);
    for (int64_t entry = 0; entry < 64 / pool; ++entry) {
      std::vector<float> expected(24), found(24);
      std::vector<std::byte> row(48);
      f16.encode(keys.data() + (entry * pool + pool - 1) * 24, 24, row.data());
      f16.decode(row.data(), 24, expected.data());
      ReadKey(layout, page.data(), layout.EntryAt(entry), found.data());
      ASSERT_EQ(found, expected) << pool << " " << entry;
    }
  }
}

TEST(Rope, TurnsBackWhatItTurned) {
  RopeOptions options;
  options.n_rot = 8;
  const auto table = std::make_shared<const RopeTable>(options);
  std::vector<AttentionRow> places;
  for (int64_t p : {0, 3, 777}) places.push_back({nullptr, p});
  std::vector<float> x = RandomRow(3 * 2 * 12, 1, 3);
  std::vector<float> there = ResultOf(*MakeRopeAngles(table), {std::monostate()}, places, 8);
  std::vector<float> back =
      ResultOf(*MakeRopeAngles(table, {.backward = true}), {std::monostate()}, places, 8);
  const OperationPtr rope = MakeRope(RopePairing::kPairs, 8, 12, 4);
  std::vector<float> turned =
      ResultOf(*rope, {Rows{x.data(), 24}, Rows{there.data(), 8}}, places, 24);
  const std::vector<float> again =
      ResultOf(*rope, {Rows{turned.data(), 24}, Rows{back.data(), 8}}, places, 24);
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 12 < 4) {
      EXPECT_EQ(turned[i], x[i]);
      continue;
    }
    // Two rotations of four roundings each, of numbers within sqrt(2) of the pair's larger.
    EXPECT_NEAR(again[i], x[i], 8 * 0x1p-24 * 8);
  }
  EXPECT_EQ(ResultOf(*MakeRopeAngles(table, {.pool = 4}), {std::monostate()}, {{nullptr, 7}}, 8),
            ResultOf(*MakeRopeAngles(table), {std::monostate()}, {{nullptr, 4}}, 8));
}

}  // namespace
}  // namespace lockstep
