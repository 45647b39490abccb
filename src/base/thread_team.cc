#include "base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/spin_wait.h"

namespace lockstep {
namespace {

// Releases a member from a barrier that can no longer complete; never leaves Run().
struct BarrierBroken {};

constexpr uint32_t kBroken = 1;
constexpr uint32_t kPhaseStep = 2;

void Pin(pthread_t thread, int cpu) {
  constexpr int kMaxCpu = 1 << 16;
  if (cpu < 0 || cpu >= kMaxCpu) throw Refused("threads: expected a CPU number, found {}", cpu);
  size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set(CPU_ALLOC(cpu + 1));
  if (set == nullptr) throw Failed("threads: out of memory");
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(cpu, bytes, set.get());
  int error = pthread_setaffinity_np(thread, bytes, set.get());
  if (error != 0) throw Refused("threads: pinning to CPU {}: {}", cpu, SystemErrorText(error));
}

int CheckedMembers(int64_t members) {
  if (members < 1 || members > 4096) {
    throw Refused("threads: expected 1 to 4096 threads, found {}", members);
  }
  return static_cast<int>(members);
}

// Blocks signals for the threads started in its scope: they belong to the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

 private:
  sigset_t saved_;
};

}  // namespace

WorkRange ShareOf(int64_t size, int64_t unit, int member, int members) {
  int64_t units = size / unit + (size % unit != 0);
  int64_t each = units / members;
  int64_t longer = units % members;  // the first `longer` members get one unit more
  auto cut = [&](int64_t m) { return std::min(size, (m * each + std::min(m, longer)) * unit); };
  return {cut(member), cut(member + 1)};
}

ThreadTeam::ThreadTeam(int members, int beside)
    : members_(CheckedMembers(members)), spins_(SpinsFor(members + beside)) {
  Start({});
}

ThreadTeam::ThreadTeam(std::span<const int> cpus, int beside)
    : members_(CheckedMembers(static_cast<int64_t>(cpus.size()))),
      spins_(SpinsFor(members_ + beside)) {
  pinned_cpu_ = cpus[0];
  Start(cpus);
}

ThreadTeam::~ThreadTeam() { Stop(); }

void ThreadTeam::Start(std::span<const int> cpus) {
  SignalsBlocked blocked;
  workers_.reserve(static_cast<size_t>(members_ - 1));
  try {
    for (int member = 1; member < members_; ++member) {
      workers_.emplace_back([this, member] { WorkerLoop(member); });
      pthread_t handle = workers_.back().native_handle();
      pthread_setname_np(handle, fmt::format("lockstep-{}", member).c_str());
      if (!cpus.empty()) Pin(handle, cpus[static_cast<size_t>(member)]);
    }
  } catch (const std::system_error& error) {
    size_t started = workers_.size() + 1;
    Stop();
    throw Failed("threads: starting thread {} of {}: {}", started + 1, members_,
                 SystemErrorText(error.code().value()));
  } catch (...) {
    Stop();
    throw;
  }
}

void ThreadTeam::Stop() {
  stopping_ = true;
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadTeam::PinCaller() const {
  if (pinned_cpu_ >= 0) Pin(pthread_self(), pinned_cpu_);
}

void ThreadTeam::WorkerLoop(int member) {
  uint32_t seen = 0;
  for (;;) {
    seen = WaitWhile(epoch_, seen, spins_);
    if (stopping_) return;
    RunMember(member);
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

void ThreadTeam::RunMember(int member) {
  try {
    (*function_)(member);
    return;
  } catch (const BarrierBroken&) {
    return;
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  phase_.fetch_or(kBroken);
  phase_.notify_all();
}

void ThreadTeam::Run(FunctionRef<void(int)> function) {
  function_ = &function;
  if (members_ > 1) {
    running_.store(static_cast<uint32_t>(members_ - 1), std::memory_order_relaxed);
    epoch_.fetch_add(1);
    epoch_.notify_all();
  }
  RunMember(0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;) {
    left = WaitWhile(running_, left, spins_);
  }
  function_ = nullptr;
  if (error_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_and(~kBroken, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadTeam::BarrierSlow() {
  // The phase cannot move before this member arrives, so reading it first names the barrier being
  // waited for.
  uint32_t phase = phase_.load(std::memory_order_acquire);
  if (phase & kBroken) throw BarrierBroken();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(members_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(kPhaseStep);
    phase_.notify_all();
    return;
  }
  if (WaitWhile(phase_, phase, spins_) & kBroken) throw BarrierBroken();
}

}  // namespace lockstep
