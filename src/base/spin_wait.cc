#include "base/spin_wait.h"

#include <sched.h>

namespace lockstep {
namespace {

constexpr int kSpins = 2000;
constexpr int kSpinsOversubscribed = 20;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

uint32_t WaitWhile(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

int SpinsFor(int threads) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // A machine too large for cpu_set_t is not short of CPUs.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return kSpins;
  return threads > CPU_COUNT(&allowed) ? kSpinsOversubscribed : kSpins;
}

}  // namespace lockstep
