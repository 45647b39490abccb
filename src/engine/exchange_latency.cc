#include "engine/exchange_latency.h"

#include <algorithm>
#include <chrono>

#include "comm/teams.h"

namespace lockstep {

double MeasureExchangeLatency() {
  using Clock = std::chrono::steady_clock;
  constexpr int kRanks = 2, kPasses = 10, kExchanges = 200;
  TeamsGroup group({.local_ranks = kRanks, .threads = {1, 1}});
  ThreadTeam drivers(kRanks);
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

double MeasureBarrier(ThreadTeam& team) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPasses = 10, kBarriers = 200;
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
