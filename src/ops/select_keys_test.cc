#include "ops/select_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/memory.h"
#include "base/thread_team.h"
#include "ops/gathered_attention.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::FirstDifference;
using testing::kInf;
using testing::kNan;
using testing::RandomRow;

// One state of some positions, whose unused bytes are NaN.
struct Cache {
  KvLayout layout;
  StateView view;
  std::vector<std::byte> bytes;
  std::vector<const std::byte*> pages;

  // keys: [entries, g, dk]; V the first dv of them.
  Cache(const KvLayout& the_layout, int64_t positions, const std::vector<float>& keys)
      : layout(the_layout) {
    const int64_t page_bytes = layout.k_bytes() + layout.v_bytes(),
                  count = (positions + kPageTokens - 1) / kPageTokens;
    view = {&layout, 0, layout.values_in_keys ? 0 : layout.k_bytes()};
    bytes.assign(static_cast<size_t>(count * page_bytes), static_cast<std::byte>(0xFF));
    for (int64_t i = 0; i < count; ++i) pages.push_back(bytes.data() + i * page_bytes);
    for (int64_t e = 0; e < positions / layout.pool; ++e) {
      std::byte* page = bytes.data() + layout.EntryPage(e) * page_bytes;
      for (int64_t g = 0; g < layout.kv_heads; ++g) {
        const float* key = keys.data() + (e * layout.kv_heads + g) * layout.dk;
        WriteKey(layout, key, page + g * layout.k_head_bytes(), layout.EntryAt(e));
        if (layout.values_in_keys) continue;
        WriteValue(layout, key, page + view.v_offset + g * layout.v_head_bytes(),
                   layout.EntryAt(e));
      }
    }
  }
  Cache(const Cache&) = delete;
};

// Runs an operation with a team, so that threads may meet.
std::vector<float> ResultOf(const Operation& op, const std::vector<Operand>& in,
                            const std::vector<AttentionRow>& places, int64_t width, Isa isa,
                            int members) {
  std::vector<float> y(places.size() * static_cast<size_t>(width), kNan);
  const std::vector<Operand> out = {Rows{y.data(), width}};
  const auto tokens = static_cast<int64_t>(places.size());
  const size_t bytes = (op.scratch_bytes(in, tokens) + 63) / 64 * 64;
  Buffer scratch(Size(bytes * static_cast<size_t>(members)), "scratch"),
      shared(Size(op.shared_bytes(in, tokens)), "shared");
  FaultLog faults(tokens);
  ThreadTeam team(members);
  team.Run([&](int member) {
    op.Run({KernelsFor(isa),
            member,
            members,
            op.split(),
            in,
            out,
            {{}, places},
            {},
            {scratch.data() + bytes * static_cast<size_t>(member), bytes},
            &faults,
            0,
            shared.bytes(),
            &team});
  });
  return y;
}

TEST(IndexScores, KernelsEqualReferenceForEveryTypePoolAndNumberOfHeads) {
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_1"}) {
    for (int64_t pool : {1, 4, 16, 64, 128}) {
      for (int64_t heads : {1, 5, 16, 64}) {
        for (int64_t d : {17, 32, 128}) {
          if (d == 128 && heads != 64) continue;
          SCOPED_TRACE(fmt::format("{} pool {} heads {} d {}", type, pool, heads, d));
          const Format& format = *FindFormat(type);
          const int64_t positions = 150 * pool;
          const Cache cache({1, d, 0, &format, &format, true, pool}, positions,
                            RandomRow(150 * d, 1, 1));
          const std::vector<float> q = RandomRow(heads * d, 1, 2), weights = RandomRow(heads, 1, 3);
          for (bool weighted : {false, true}) {
            const IndexScoresTask task{cache.layout,
                                       0,
                                       cache.pages.data(),
                                       q.data(),
                                       weighted ? weights.data() : nullptr,
                                       heads,
                                       0.3f};
            for (const auto& [first, count] :
                 {std::pair<int64_t, int64_t>{0, 64}, {64, 64}, {128, 22}, {0, 1}, {64, 17}}) {
              std::vector<float> expected(64), found(64);
              IndexScoresReference(task, first, count, expected.data(), nullptr);
              for (Isa isa : AvailableIsas()) {
                testing::Fenced<std::byte> scratch(IndexScratchBytes(cache.layout));
                KernelsFor(isa).index_scores(task, first, count, found.data(), scratch.data());
                ASSERT_TRUE(scratch.intact());
                ASSERT_EQ(
                    FirstDifference(std::vector<float>(expected.begin(), expected.begin() + count),
                                    std::vector<float>(found.begin(), found.begin() + count)),
                    -1)
                    << IsaName(isa);
              }
            }
          }
        }
      }
    }
  }
}

TEST(TopEntries, KeepTheLargestScoresAndTheLowerOfEqualEntries) {
  std::mt19937 random(7);
  for (int64_t k : {1, 2, 7, 64}) {
    for (int64_t n : {0, 1, 6, 7, 8, 100, 3000}) {
      std::vector<float> scores;
      for (int64_t i = 0; i < n; ++i) {
        const float hostile[] = {0.0f, -0.0f, kInf, -kInf, kNan, 1e-45f};
        scores.push_back(i % 11 == 3 ? hostile[random() % 6]
                                     : static_cast<float>(random() % 50) - 25);
      }
      std::vector<int64_t> expected(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) expected[static_cast<size_t>(i)] = i;
      std::ranges::stable_sort(expected, [&](int64_t a, int64_t b) {
        const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
        return x > y || (y != y && x == x);
      });
      expected.resize(static_cast<size_t>(std::min(k, n)));
      std::ranges::sort(expected);
      std::vector<uint64_t> buffer(static_cast<size_t>(2 * k));
      TopEntries top(k, buffer);
      for (int64_t i = 0; i < n; ++i) top.Add(i, scores[static_cast<size_t>(i)]);
      std::vector<int64_t> found;
      for (uint64_t rank : top.Finish()) found.push_back(TopEntries::EntryOf(rank));
      std::ranges::sort(found);
      ASSERT_EQ(found, expected) << "the best " << k << " of " << n;
    }
  }
}

std::vector<AttentionRow> Places(const Cache& cache, const std::vector<int64_t>& positions) {
  std::vector<AttentionRow> places;
  for (int64_t p : positions) places.push_back({cache.pages.data(), p});
  return places;
}

TEST(SelectKeys, ChoosesTheSameForAnyTeamAndBatch) {
  const Format& f16 = *FindFormat("F16");
  constexpr int64_t kHeads = 6, kDims = 32, kPositions = 1500;
  for (int64_t pool : {1, 4}) {
    for (const auto& [entries, first] :
         {std::pair(false, 0), std::pair(true, 0), std::pair(false, 3)}) {
      const Cache cache({1, kDims, 0, &f16, &f16, true, pool}, kPositions,
                        RandomRow(kPositions / pool * kDims, 1, 1));
      const SelectKeysSettings settings{
          .scale = 0.2f, .top_k = 20, .pool = pool, .first = first, .entries = entries};
      const OperationPtr op = MakeSelectKeys(settings);
      const std::vector<int64_t> positions = {0, 2, 3, 20, 70, 83, 700, 1499};
      const auto tokens = static_cast<int64_t>(positions.size());
      std::vector<float> q = RandomRow(tokens * kHeads * kDims, 1, 2),
                         w = RandomRow(tokens * kHeads, 1, 3), expected;
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t count = (positions[t] + 1) / pool;
        std::vector<std::pair<float, int64_t>> scored;
        const IndexScoresTask task{cache.layout,
                                   0,
                                   cache.pages.data(),
                                   q.data() + t * kHeads * kDims,
                                   w.data() + t * kHeads,
                                   kHeads,
                                   0.2f};
        for (int64_t e = first; e < count; ++e) {
          float score;
          IndexScoresReference(task, e, 1, &score, nullptr);
          scored.emplace_back(-score, e);
        }
        std::ranges::sort(scored);
        scored.resize(std::min<size_t>(scored.size(), 20));
        std::vector<float> row;
        for (const auto& [score, e] : scored) {
          for (int64_t i = 0; i < (entries ? 1 : pool); ++i)
            row.push_back(static_cast<float>(entries ? e : e * pool + i));
        }
        for (int64_t p = count * pool; !entries && p <= positions[t]; ++p)
          row.push_back(static_cast<float>(p));
        std::ranges::sort(row);
        row.resize(static_cast<size_t>(settings.width()), -1.0f);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      for (int members : {1, 2, 5, 12}) {
        ASSERT_EQ(
            ResultOf(*op, {Rows{q.data(), kHeads * kDims}, Rows{w.data(), kHeads}, cache.view},
                     Places(cache, positions), settings.width(), BestIsa(), members),
            expected)
            << members << " members, pool " << pool;
      }
      // Alone, with its entries dealt to many threads.
      std::vector<float> last_q(q.end() - kHeads * kDims, q.end()),
          last_w(w.end() - kHeads, w.end());
      const std::vector<float> alone = ResultOf(
          *op, {Rows{last_q.data(), kHeads * kDims}, Rows{last_w.data(), kHeads}, cache.view},
          Places(cache, {1499}), settings.width(), BestIsa(), 7);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), expected.end() - settings.width()));
    }
  }
}

// A selection of everything is attention over everything.
TEST(GatheredAttention, GivesTheBitsOfAttentionWhereAllIsSelected) {
  for (const char* type : {"F32", "F16", "Q8_0"}) {
    for (bool in_keys : {false, true}) {
      const Format& format = *FindFormat(type);
      constexpr int64_t kHeads = 5, kPositions = 700;
      const int64_t g = in_keys ? 1 : 2, dk = 64, dv = in_keys ? 32 : 64;
      const Cache cache({g, dk, dv, &format, &format, in_keys}, kPositions,
                        RandomRow(kPositions * g * dk, 1, 1));
      const std::vector<int64_t> positions = {0, 63, 64, 513, 699};
      const auto tokens = static_cast<int64_t>(positions.size());
      std::vector<float> q = RandomRow(tokens * g * kHeads * dk, 1, 2),
                         all(static_cast<size_t>(tokens * kPositions), -1.0f);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t p = 0; p <= positions[t]; ++p)
          all[static_cast<size_t>(t * kPositions + p)] = static_cast<float>(p);
      }
      AttentionSettings settings;
      settings.scale = 0.125f;
      const OperationPtr attention = MakeAttention(settings);
      const OperationPtr gathered = MakeGatheredAttention(
          {.attention = settings, .positions_selected = true, .most_rows = kPositions});
      for (Isa isa : AvailableIsas()) {
        for (int members : {1, 3}) {
          const std::vector<float> expected =
              ResultOf(*attention, {Rows{q.data(), g * kHeads * dk}, cache.view, cache.view},
                       Places(cache, positions), g * kHeads * dv, isa, members);
          const std::vector<float> found =
              ResultOf(*gathered,
                       {Rows{q.data(), g * kHeads * dk}, cache.view, cache.view,
                        Rows{all.data(), kPositions}},
                       Places(cache, positions), g * kHeads * dv, isa, members);
          ASSERT_EQ(FirstDifference(expected, found), -1) << type << " " << IsaName(isa);
        }
      }
    }
  }
}

// Entries, then positions: a sequence of its own.
TEST(GatheredAttention, WalksEntriesAndThenPositionsAsOneSequence) {
  const Format& f32 = *FindFormat("F32");
  constexpr int64_t kHeads = 3, kDims = 16, kPool = 4;
  const std::vector<float> keys = RandomRow(200 * kDims, 1, 1),
                           pooled = RandomRow(50 * kDims, 1, 2);
  const Cache cache({1, kDims, kDims, &f32, &f32, true}, 200, keys),
      entries({1, kDims, kDims, &f32, &f32, true, kPool}, 200, pooled);
  std::vector<float> q = RandomRow(kHeads * kDims, 1, 3), chosen = {1, 4, 40, -1, -1},
                     sinks = {0.5f, -1, 2};
  // A page of both states would hold them at two places; here their pages are apart, so each state is read through its own.
  std::vector<std::byte> both(
      4 * static_cast<size_t>(cache.layout.k_bytes() + entries.layout.k_bytes()));
  const int64_t page_bytes = cache.layout.k_bytes() + entries.layout.k_bytes();
  std::vector<const std::byte*> pages;
  for (int64_t i = 0; i < 4; ++i) {
    std::byte* page = both.data() + i * page_bytes;
    std::copy_n(cache.pages[i], cache.layout.k_bytes(), page);
    std::copy_n(entries.pages[i], entries.layout.k_bytes(), page + cache.layout.k_bytes());
    pages.push_back(page);
  }
  const StateView entries_view{&entries.layout, cache.layout.k_bytes(), cache.layout.k_bytes()};
  for (bool selected : {false, true}) {
    std::vector<float> joined;
    for (int64_t e = 0; e < 190 / kPool; ++e) {
      if (selected && e != 1 && e != 4 && e != 40) continue;
      joined.insert(joined.end(), pooled.begin() + e * kDims, pooled.begin() + (e + 1) * kDims);
    }
    joined.insert(joined.end(), keys.begin() + 180 * kDims, keys.begin() + 190 * kDims);
    const auto rows = static_cast<int64_t>(joined.size()) / kDims;
    const Cache expected_cache({1, kDims, kDims, &f32, &f32, true}, rows, joined);
    AttentionSettings settings;
    settings.sinks = true;
    const std::vector<float> expected =
        ResultOf(*MakeAttention(settings),
                 {Rows{q.data(), kHeads * kDims}, expected_cache.view, expected_cache.view,
                  std::span<const float>(sinks)},
                 Places(expected_cache, {rows - 1}), kHeads * kDims, BestIsa(), 1);
    settings.window = 10;
    const OperationPtr op = MakeGatheredAttention({.attention = settings,
                                                   .with_entries = true,
                                                   .entries_selected = selected,
                                                   .most_rows = 60});
    std::vector<Operand> in = {Rows{q.data(), kHeads * kDims}, cache.view, cache.view,
                               entries_view};
    if (selected) in.emplace_back(Rows{chosen.data(), 5});
    in.emplace_back(std::span<const float>(sinks));
    ASSERT_EQ(FirstDifference(
                  expected, ResultOf(*op, in, {{pages.data(), 189}}, kHeads * kDims, BestIsa(), 2)),
              -1);
  }
}

}  // namespace
}  // namespace lockstep
