#include "engine/exchange_latency.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "base/topology.h"
#include "comm/teams.h"

namespace lockstep {
namespace {

double ExchangeOfPinnedRanks() {
  using Clock = std::chrono::steady_clock;
  constexpr int kRanks = 2, kPasses = 10, kExchanges = 200;
  TeamsGroup group({.local_ranks = kRanks, .threads = {1, 1}});
  const std::vector<int> cpus = Topology::Detect().PlaceTeams({kRanks})[0];
  ThreadTeam drivers = cpus.empty() ? ThreadTeam(kRanks) : ThreadTeam(cpus);
  drivers.PinCaller();
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

// The caller of a pinned team is pinned with it, so that is a thread of its own.
double MeasureExchangeLatency() {
  return std::async(std::launch::async, ExchangeOfPinnedRanks).get();
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
