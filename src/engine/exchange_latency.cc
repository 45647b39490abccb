#include "engine/exchange_latency.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "base/topology.h"
#include "comm/teams.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;

// drivers: a member for each rank.
double MeasureExchange(ThreadTeam& drivers) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPasses = 10, kExchanges = 200;
  TeamsGroup group({.local_ranks = kRanks, .threads = {1, 1}});
  double best = 1;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point start = Clock::now();
    drivers.Run([&](int rank) {
      const int64_t sizes[kRanks] = {4, 4};
      const std::byte data[4] = {};
      const std::byte* mine = data;
      for (int i = 0; i < kExchanges; ++i) group.local(rank).Exchange(0, {&mine, 1}, sizes);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds / kExchanges);
  }
  return best;
}

}  // namespace

double OnPinnedTeam(int threads, FunctionRef<double(ThreadTeam&)> measure) {
  const auto on_own_thread = [&] {
    const std::vector<int> cpus = Topology::Detect().PlaceTeams({threads})[0];
    ThreadTeam team = cpus.empty() ? ThreadTeam(threads) : ThreadTeam(cpus);
    team.PinCaller();
    return measure(team);
  };
  return std::async(std::launch::async, on_own_thread).get();
}

double MeasureExchangeLatency() {
  return OnPinnedTeam(kRanks, [](ThreadTeam& drivers) { return MeasureExchange(drivers); });
}

double MeasureBarrier(ThreadTeam& team) {
  using Clock = std::chrono::steady_clock;
  // Short passes: the best is then one that nothing else on the machine has interrupted.
  constexpr int kPasses = 100, kBarriers = 20;
  double best = 1;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point start = Clock::now();
    team.Run([&](int) {
      for (int i = 0; i < kBarriers; ++i) team.Barrier();
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds / kBarriers);
  }
  return best;
}

}  // namespace lockstep
