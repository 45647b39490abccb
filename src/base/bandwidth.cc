#include "base/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/memory.h"
#include "base/topology.h"

namespace lockstep {
namespace {

constexpr int64_t kUnitBytes = 4096;  // members' parts are whole pages
constexpr double kProbeSeconds = 0.15;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Exclusive or of all words; independent lanes let the compiler keep several loads in flight.
uint64_t ReadAll(const uint64_t* words, int64_t count) {
  constexpr int kLanes = 32;
  uint64_t lanes[kLanes] = {};
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] ^= words[i + lane];
  }
  uint64_t all = 0;
  for (uint64_t lane : lanes) all ^= lane;
  return all;
}

}  // namespace

double MeasureReadBandwidth(ThreadTeam& team, uint64_t bytes) {
  uint64_t available = AvailableMemoryBytes();
  if (available > 0) bytes = std::min(bytes, available / 4);
  const auto units = std::max<int64_t>(team.size(), static_cast<int64_t>(bytes / kUnitBytes));
  const int64_t size = units * kUnitBytes;
  Buffer buffer(Size(static_cast<uint64_t>(size)), "bandwidth probe");

  double best_seconds = std::numeric_limits<double>::infinity();
  bool more = true;
  std::atomic<uint64_t> sink{0};
  team.Run([&](int member) {
    WorkRange mine = ShareOf(size, kUnitBytes, member, team.size());
    std::memset(buffer.data() + mine.begin, 1, static_cast<size_t>(mine.size()));
    const auto* words = reinterpret_cast<const uint64_t*>(buffer.data() + mine.begin);
    const double end = Seconds() + kProbeSeconds;
    team.Barrier();
    while (more) {
      const double start = Seconds();
      uint64_t read = ReadAll(words, mine.size() / static_cast<int64_t>(sizeof(uint64_t)));
      sink.fetch_xor(read, std::memory_order_relaxed);
      team.Barrier();
      if (member == 0) {
        const double now = Seconds();
        best_seconds = std::min(best_seconds, std::max(now - start, 1e-9));
        more = now < end;
      }
      team.Barrier();
    }
  });
  return static_cast<double>(size) / best_seconds;
}

}  // namespace lockstep
