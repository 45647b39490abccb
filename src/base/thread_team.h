// A team of threads that runs one function together, with a barrier inside.
//
// A rank's work is many short steps with a barrier between them, so the team is built for latency:
// members spin for a short while before they sleep. It stays polite: an idle team sleeps, and a
// machine with fewer free CPUs than members still makes progress because every wait ends in a
// futex.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace lockstep {

// A half-open range of work.
struct WorkRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const WorkRange&) const = default;
};

// The part of [0, size) that belongs to `member` of `members`: contiguous, in member order, cut at
// multiples of `unit`, equal to within one unit. Expects size >= 0, unit >= 1, 0 <= member <
// members.
WorkRange ShareOf(int64_t size, int64_t unit, int member, int members);

// `size()` members: the thread that calls Run() is member 0, the others are threads of the team.
// One thread drives a team at a time, and Run() is not called from inside Run().
class ThreadTeam {
 public:
  // A team of `members` (at least 1) threads that the system places. Throws Failed where a thread
  // cannot be started. `beside`: threads of other teams that work at the same time, for which a
  // member that waits may have to leave its CPU.
  explicit ThreadTeam(int members, int beside = 0);
  // A team with one member per CPU id (as in Topology), workers pinned: member i to cpus[i]. The
  // caller's thread is left where it is, see PinCaller(). Throws Refused where a CPU does not exist
  // or is not allowed.
  explicit ThreadTeam(std::span<const int> cpus, int beside = 0);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int size() const { return members_; }

  // Pins the calling thread to member 0's CPU; nothing to do for a team without CPUs. For threads
  // that only drive this team: threads they start later would inherit the pin.
  void PinCaller() const;

  // Runs function(member) on every member and returns when all have finished. The first exception
  // of a member is thrown again here; members that wait in Barrier() are then released by an
  // exception of the team's own, so code in a member must not swallow exceptions it does not know.
  void Run(FunctionRef<void(int member)> function);

  // Waits until all members have called it; what they wrote before is visible after. Only inside
  // Run(), the same number of times by every member.
  void Barrier() {
    if (members_ > 1) BarrierSlow();
  }

 private:
  void Start(std::span<const int> cpus);
  void Stop();
  void WorkerLoop(int member);
  void RunMember(int member);
  void BarrierSlow();

  const int members_;
  const int spins_;  // bound on the spinning of one wait
  int pinned_cpu_ = -1;
  std::vector<std::thread> workers_;

  const FunctionRef<void(int)>* function_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;

  // Each on a cache line of its own: members spin on one while others write the next.
  alignas(64) std::atomic<uint32_t> epoch_{
      0};  // one more for each Run() and for the end of the team
  alignas(64) std::atomic<uint32_t> running_{0};  // workers still inside the current Run()
  alignas(64) std::atomic<uint32_t> arrived_{0};  // members at the current barrier
  alignas(64) std::atomic<uint32_t> phase_{
      0};                  // barriers passed, times two; bit 0: a member has thrown
  bool stopping_ = false;  // published by epoch_
};

}  // namespace lockstep
