#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

double ProcessCpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(ThreadTeam, RunsEveryMemberOnceForEachRun) {
  for (int members : {1, 2, 3, 8}) {
    ThreadTeam team(members);
    std::vector<int> calls(static_cast<size_t>(members), 0);
    for (int run = 0; run < 2000; ++run) team.Run([&](int m) { ++calls[static_cast<size_t>(m)]; });
    EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(members), 2000)) << members;
  }
}

TEST(ThreadTeam, MakesTheCallerMemberZero) {
  ThreadTeam team(3);
  std::vector<std::thread::id> ids(3);
  team.Run([&](int m) { ids[static_cast<size_t>(m)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_NE(ids[2], ids[0]);
  EXPECT_NE(ids[1], ids[2]);
}

// Every member adds to its own plain counter, then reads all others: a barrier that let anyone
// through early, or did not publish the writes, would show another sum.
TEST(ThreadTeam, BarrierSeparatesStepsForAllMembers) {
  for (int members : {1, 2, 3, 8}) {
    constexpr int kSteps = 500;
    ThreadTeam team(members);
    std::vector<int> counters(static_cast<size_t>(members), 0);
    std::atomic<int> wrong{0};
    team.Run([&](int m) {
      for (int step = 1; step <= kSteps; ++step) {
        ++counters[static_cast<size_t>(m)];
        team.Barrier();
        if (std::accumulate(counters.begin(), counters.end(), 0) != step * members) ++wrong;
        team.Barrier();
      }
    });
    EXPECT_EQ(wrong, 0) << members;
    EXPECT_EQ(counters, std::vector<int>(static_cast<size_t>(members), kSteps)) << members;
  }
}

TEST(ThreadTeam, FinishesQuicklyWithMoreMembersThanCpus) {
  auto start = std::chrono::steady_clock::now();
  ThreadTeam team(8);
  std::atomic<int> passed{0};
  for (int run = 0; run < 50; ++run) {
    team.Run([&](int) {
      for (int i = 0; i < 10; ++i) team.Barrier();
      ++passed;
    });
  }
  EXPECT_EQ(passed, 400);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(ThreadTeam, CarriesAnExceptionOfAnyMemberToTheCaller) {
  ThreadTeam team(4);
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::string text;
    try {
      team.Run([&](int m) {
        if (m == thrower) throw Failed("step: member {}", m);
      });
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_EQ(text, "step: member " + std::to_string(thrower));
  }
}

TEST(ThreadTeam, ReleasesMembersAtABarrierThatAnExceptionBroke) {
  ThreadTeam team(4);
  for (int round = 0; round < 200; ++round) {
    int thrower = round % 4;
    std::atomic<int> beyond{0};
    EXPECT_THROW(team.Run([&](int m) {
      for (int i = 0; i < round % 3; ++i) team.Barrier();
      if (m == thrower) throw std::runtime_error("planted");
      team.Barrier();
      ++beyond;
    }),
                 std::runtime_error);
    EXPECT_EQ(beyond, 0) << round;
    // The team is as good as new.
    std::atomic<int> ran{0};
    team.Run([&](int) {
      team.Barrier();
      ++ran;
      team.Barrier();
    });
    ASSERT_EQ(ran, 4) << round;
  }
}

TEST(ThreadTeam, CanBeDestroyedAtOnceAndWhileIdle) {
  for (int i = 0; i < 50; ++i) ThreadTeam team(4);
  for (int i = 0; i < 5; ++i) {
    ThreadTeam team(4);
    team.Run([](int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadTeam, BurnsNoCpuWhileIdle) {
  ThreadTeam team(4);
  team.Run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  double before = ProcessCpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(ProcessCpuSeconds() - before, 0.05);
}

TEST(ThreadTeam, PinsWorkersAndTheCallerOnlyWhenAsked) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;

  std::thread driver([&] {
    std::vector<int> cpus = {cpu, cpu};
    ThreadTeam team(cpus);
    std::vector<cpu_set_t> sets(2);
    auto read = [&](int m) {
      sched_getaffinity(0, sizeof(cpu_set_t), &sets[static_cast<size_t>(m)]);
    };
    team.Run(read);
    EXPECT_EQ(CPU_COUNT(&sets[0]), CPU_COUNT(&allowed));
    EXPECT_EQ(CPU_COUNT(&sets[1]), 1);
    EXPECT_TRUE(CPU_ISSET(cpu, &sets[1]));
    team.PinCaller();
    team.Run(read);
    EXPECT_EQ(CPU_COUNT(&sets[0]), 1);
  });
  driver.join();
}

TEST(ThreadTeam, RefusesImpossibleCountsAndCpus) {
  EXPECT_THROW(ThreadTeam(0), Error);
  EXPECT_THROW(ThreadTeam(-3), Error);
  EXPECT_THROW(ThreadTeam(1 << 20), Error);
  for (std::vector<int> cpus : {std::vector<int>{}, {0, -1}, {0, 60000}, {0, 1 << 30}}) {
    EXPECT_THROW(ThreadTeam{std::span<const int>(cpus)}, Error);
  }
}

TEST(ShareOf, CoversTheRangeInOrderInWholeUnits) {
  for (int64_t size : {0, 1, 7, 64, 100, 1000}) {
    for (int64_t unit : {1, 3, 16, 64}) {
      for (int members : {1, 2, 3, 7, 16}) {
        int64_t next = 0, smallest = size, largest = 0;
        for (int m = 0; m < members; ++m) {
          WorkRange range = ShareOf(size, unit, m, members);
          ASSERT_EQ(range.begin, next);
          ASSERT_GE(range.size(), 0);
          if (range.end < size) {
            ASSERT_EQ(range.end % unit, 0);
          }
          smallest = std::min(smallest, range.size());
          largest = std::max(largest, range.size());
          next = range.end;
        }
        ASSERT_EQ(next, size);
        // One unit for the remainder, one for the cut-off last unit.
        ASSERT_LE(largest - smallest, 2 * unit);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
