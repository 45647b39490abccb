#include "engine/integer_peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/integer_peak_kernels.h"

namespace lockstep {
namespace {

constexpr double kProbeSeconds = 0.1;
constexpr int64_t kSteps = 4096;

IntegerProbeFn* ProbeFor(Isa isa) {
  switch (isa) {
#define LOCKSTEP_CASE(name, enumerator) \
  case Isa::enumerator:                 \
    return name::IntegerProbe;
    LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_CASE)
#undef LOCKSTEP_CASE
    default:
      return portable::IntegerProbe;
  }
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double MeasureIntegerPeak(ThreadTeam& team, Isa isa) {
  IntegerProbeFn* probe = ProbeFor(isa);
  // Not constants, and wide apart: members must not share a cache line.
  std::vector<uint8_t> bytes(64, 3);
  std::vector<double> rates(static_cast<size_t>(team.size()) * 8);
  team.Run([&](int member) {
    alignas(64) int32_t sink[16];
    double best = 0;
    team.Barrier();
    const double end = Seconds() + kProbeSeconds;
    for (double start = Seconds(); start < end;) {
      const int64_t products = probe(bytes.data(), kSteps, sink);
      const double now = Seconds();
      best = std::max(best, 2 * static_cast<double>(products) / std::max(now - start, 1e-9));
      start = now;
    }
    // A sum that somebody reads.
    rates[static_cast<size_t>(member) * 8] = sink[0] == 1 ? 0 : best;
  });
  double all = 0;
  for (double rate : rates) all += rate;
  return all;
}

}  // namespace lockstep
