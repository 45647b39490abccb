// Where all threads of all ranks of a process meet: a barrier whose last arrival does something for all.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"

namespace lockstep {

class Meeting {
 public:
  // threads: of each rank's team.
  explicit Meeting(const std::vector<int>& threads);

  // Returns on every thread once all have called it and `last`, on the thread that came last, has returned; what any wrote before is
  // visible after. Throws Failed with the reason where Break() was called, on all.
  void Meet(int rank, FunctionRef<void()> last);

  // The first reason counts.
  void Break(std::string_view reason);
  // Makes a broken meeting whole while no thread is inside.
  void Restart();

 private:
  [[noreturn]] void ThrowBroken();

  struct alignas(64) Team {
    std::atomic<uint32_t> arrived{0};
    uint32_t threads = 0;
  };
  const int spins_;
  std::vector<Team> teams_;
  std::mutex reason_mutex_;
  std::string reason_;
  alignas(64) std::atomic<uint32_t> teams_arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};  // meetings held, times two; bit 0: broken
};

}  // namespace lockstep
