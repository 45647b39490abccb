#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

// Teams of these sizes, each member of which runs `run(communicator, member, team)`.
template <typename F>
void OnAllMembers(RankGroup& group, const std::vector<int>& threads, F run) {
  std::vector<std::unique_ptr<ThreadTeam>> teams;
  for (int size : threads) teams.push_back(std::make_unique<ThreadTeam>(size, 8));
  ThreadTeam ranks(static_cast<int>(threads.size()), 8);
  ranks.Run([&](int rank) {
    ThreadTeam& team = *teams[static_cast<size_t>(rank)];
    team.Run([&](int member) { run(group.local(rank), member, team); });
  });
}

const std::vector<std::vector<int>> kTeams = {{1}, {3}, {1, 1}, {2, 1}, {1, 2, 3}, {2, 2, 1, 1}};

std::unique_ptr<RankGroup> Connect(const std::vector<int>& threads) {
  return ConnectRanks({.local_ranks = static_cast<int>(threads.size()), .threads = threads});
}

TEST(Exchange, GivesEveryRankWhatAllWroteBefore) {
  for (const auto& threads : kTeams) {
    auto group = Connect(threads);
    constexpr int kTurns = 300;
    // Of each rank, one number a member, written anew each turn; two of them, as the last turn's is still read.
    std::vector<std::array<std::vector<int64_t>, 2>> numbers(threads.size());
    for (size_t rank = 0; rank < threads.size(); ++rank)
      numbers[rank].fill(std::vector<int64_t>(static_cast<size_t>(threads[rank])));
    std::vector<int64_t> bytes;
    for (int size : threads) bytes.push_back(size * 8);
    std::atomic<int> wrong{0};
    OnAllMembers(*group, threads, [&](Communicator& comm, int member, ThreadTeam&) {
      for (int64_t turn = 0; turn < kTurns; ++turn) {
        auto& mine = numbers[static_cast<size_t>(comm.rank())][static_cast<size_t>(turn % 2)];
        mine[static_cast<size_t>(member)] = turn * 100 + comm.rank() * 10 + member;
        const auto* part = reinterpret_cast<const std::byte*>(mine.data());
        const RankParts parts = comm.Exchange(member, {&part, 1}, bytes);
        for (size_t rank = 0; rank < threads.size(); ++rank) {
          const auto* found = reinterpret_cast<const int64_t*>(parts.at(rank, 0));
          for (int m = 0; m < threads[rank]; ++m)
            wrong += found[m] != turn * 100 + static_cast<int64_t>(rank) * 10 + m;
        }
      }
    });
    EXPECT_EQ(wrong, 0);
    for (int i = 0; i < group->local_ranks(); ++i)
      EXPECT_EQ(group->local(i).counts().exchanges, kTurns);
  }
}

// Every rank has a run of the leaves, some of them none; two terms in one reduction.
TEST(Reduce, GivesTheBitsOfTheWholeTreeForEverySplit) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const auto& threads : kTeams) {
    auto group = Connect(threads);
    const auto ranks = static_cast<int64_t>(threads.size());
    for (int64_t leaves : {1, 2, 5, 13, 64}) {
      constexpr int64_t kRows = 3, kWidth = 70;
      std::vector<std::vector<float>> leaf(static_cast<size_t>(leaves));
      for (auto& values : leaf) {
        for (int64_t i = 0; i < kRows * kWidth; ++i) values.push_back(normal(random));
      }
      std::vector<float> expected;
      for (size_t i = 0; i < static_cast<size_t>(kRows * kWidth); ++i) {
        std::vector<float> values;
        for (auto& of_leaf : leaf) values.push_back(of_leaf[i]);
        expected.push_back(SegmentTree(values));
      }
      std::vector<int64_t> cuts = {0};
      for (int64_t r = 1; r < ranks; ++r)
        cuts.push_back(std::uniform_int_distribution<int64_t>(cuts.back(), leaves)(random));
      cuts.push_back(leaves);
      std::vector<std::vector<float>> roots(static_cast<size_t>(ranks));
      std::vector<int32_t> counts;
      std::vector<LeafRange> all;
      for (int64_t r = 0; r < ranks; ++r) {
        const auto own =
            SubtreeRoots(cuts[static_cast<size_t>(r)], cuts[static_cast<size_t>(r) + 1], leaves);
        counts.push_back(static_cast<int32_t>(own.size()));
        all.insert(all.end(), own.begin(), own.end());
        for (const LeafRange& root : own) {
          for (size_t i = 0; i < static_cast<size_t>(kRows * kWidth); ++i) {
            std::vector<float> values;
            for (int64_t l = root.first; l < root.last; ++l)
              values.push_back(leaf[static_cast<size_t>(l)][i]);
            roots[static_cast<size_t>(r)].push_back(SegmentTree(values));
          }
        }
      }
      const RootFold fold(all, leaves);
      std::vector<RootPlace> order;
      for (int32_t r = 0; r < std::ssize(counts); ++r) {
        for (int32_t i = 0; i < counts[static_cast<size_t>(r)]; ++i) order.push_back({r, i});
      }
      std::vector<std::vector<float>> out(static_cast<size_t>(ranks) * 2,
                                          std::vector<float>(kRows * kWidth));
      OnAllMembers(*group, threads, [&](Communicator& comm, int member, ThreadTeam& team) {
        const auto rank = static_cast<size_t>(comm.rank());
        std::vector<ReduceTerm> terms;
        for (size_t i = 0; i < 2; ++i)
          terms.push_back(
              {roots[rank].data(), counts, order, &fold, out[2 * rank + i].data(), kWidth, kWidth});
        comm.Reduce(member, terms, kRows, ShareOf(kWidth, 32, member, team.size()),
                    CombineRootsReference);
      });
      for (const auto& found : out)
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), expected.size() * 4), 0) << leaves;
    }
  }
}

TEST(Reduce, TakesTheLargestOfRanksThatHaveAny) {
  for (const auto& threads : kTeams) {
    auto group = Connect(threads);
    constexpr int64_t kRows = 3, kWidth = 70;
    // Every second rank has nothing, but the last has something.
    std::vector<int32_t> counts;
    for (size_t rank = 0; rank < threads.size(); ++rank)
      counts.push_back(rank % 2 == 0 || rank + 1 == threads.size());
    std::vector<std::vector<float>> mine(threads.size()),
        out(threads.size(), std::vector<float>(kRows * kWidth));
    std::vector<float> expected(kRows * kWidth, -std::numeric_limits<float>::infinity());
    for (size_t rank = 0; rank < threads.size(); ++rank) {
      for (size_t i = 0; i < expected.size() && counts[rank] != 0; ++i) {
        mine[rank].push_back(-static_cast<float>((i * 31 + rank * 17) % 97));
        expected[i] = std::max(expected[i], mine[rank].back());
      }
    }
    OnAllMembers(*group, threads, [&](Communicator& comm, int member, ThreadTeam& team) {
      const auto rank = static_cast<size_t>(comm.rank());
      const ReduceTerm term{mine[rank].empty() ? nullptr : mine[rank].data(), counts, {}, nullptr,
                            out[rank].data(), kWidth, kWidth};
      comm.Reduce(member, {&term, 1}, kRows, ShareOf(kWidth, 32, member, team.size()),
                  CombineRootsReference);
    });
    for (const auto& found : out) EXPECT_EQ(found, expected);
  }
}

TEST(Gather, PutsColumnsSideBySide) {
  for (const auto& threads : kTeams) {
    auto group = Connect(threads);
    constexpr int64_t kRows = 5;
    std::vector<int64_t> widths;
    for (size_t rank = 0; rank < threads.size(); ++rank)
      widths.push_back(static_cast<int64_t>(rank * 7 % 3) * 4);
    const int64_t all = std::accumulate(widths.begin(), widths.end(), int64_t{0});
    std::vector<std::vector<float>> mine(threads.size()),
        out(threads.size(), std::vector<float>(static_cast<size_t>(all * kRows)));
    std::vector<float> expected(static_cast<size_t>(all * kRows));
    int64_t at = 0;
    for (size_t rank = 0; rank < threads.size(); at += widths[rank++]) {
      for (int64_t t = 0; t < kRows; ++t) {
        for (int64_t c = 0; c < widths[rank]; ++c) {
          const auto value = static_cast<float>(t * all + at + c);
          mine[rank].push_back(value);
          expected[static_cast<size_t>(t * all + at + c)] = value;
        }
      }
    }
    OnAllMembers(*group, threads, [&](Communicator& comm, int member, ThreadTeam& team) {
      const auto rank = static_cast<size_t>(comm.rank());
      comm.Gather(member, mine[rank].data(), widths, kRows, ShareOf(all, 3, member, team.size()),
                  out[rank].data());
      team.Barrier();
    });
    for (const auto& found : out) EXPECT_EQ(found, expected);
  }
}

TEST(Abort, ReleasesAllWhoWaitAndSaysWhy) {
  for (const auto& threads : kTeams) {
    auto group = Connect(threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::atomic<int> released{0};
      OnAllMembers(*group, threads, [&](Communicator& comm, int member, ThreadTeam&) {
        if (comm.rank() + 1 == comm.ranks() && member == 0) {
          comm.Abort("rank went away");
          comm.Abort("another reason");
          return;
        }
        const std::byte* part = nullptr;
        const std::vector<int64_t> bytes(static_cast<size_t>(comm.ranks()));
        try {
          comm.Exchange(member, {&part, 1}, bytes);
        } catch (const Error& error) {
          if (std::string_view(error.what()) == "rank went away") ++released;
        }
      });
      EXPECT_EQ(released, std::accumulate(threads.begin(), threads.end(), 0) - 1);
      group->Restart();
    }
    std::atomic<int> passed{0};
    OnAllMembers(*group, threads, [&](Communicator& comm, int member, ThreadTeam&) {
      const std::byte* part = nullptr;
      const std::vector<int64_t> bytes(static_cast<size_t>(comm.ranks()));
      comm.Exchange(member, {&part, 1}, bytes);
      ++passed;
    });
    EXPECT_EQ(passed, std::accumulate(threads.begin(), threads.end(), 0));
  }
}

}  // namespace
}  // namespace lockstep
