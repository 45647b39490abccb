#include "comm/meeting.h"

#include <numeric>

#include "base/error.h"
#include "base/spin_wait.h"

namespace lockstep {
namespace {

constexpr uint32_t kBroken = 1;
constexpr uint32_t kPhaseStep = 2;

}  // namespace

Meeting::Meeting(const std::vector<int>& threads)
    : spins_(SpinsFor(std::accumulate(threads.begin(), threads.end(), 0))), teams_(threads.size()) {
  for (size_t i = 0; i < threads.size(); ++i) teams_[i].threads = static_cast<uint32_t>(threads[i]);
}

void Meeting::Meet(int rank, FunctionRef<void()> last) {
  // The phase cannot move before this thread arrives, so reading it first names the meeting.
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (phase & kBroken) ThrowBroken();
  Team& team = teams_[static_cast<size_t>(rank)];
  if (team.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == team.threads) {
    team.arrived.store(0, std::memory_order_relaxed);
    if (teams_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == teams_.size()) {
      teams_arrived_.store(0, std::memory_order_relaxed);
      last();
      const uint32_t now = phase_.fetch_add(kPhaseStep);
      phase_.notify_all();
      if (now & kBroken) ThrowBroken();
      return;
    }
  }
  if (WaitWhile(phase_, phase, spins_) & kBroken) ThrowBroken();
}

void Meeting::Break(std::string_view reason) {
  {
    std::lock_guard lock(reason_mutex_);
    if (reason_.empty()) reason_ = reason;
  }
  phase_.fetch_or(kBroken);
  phase_.notify_all();
}

void Meeting::Restart() {
  for (Team& team : teams_) team.arrived.store(0);
  teams_arrived_.store(0);
  phase_.store(0);
  reason_.clear();
}

void Meeting::ThrowBroken() {
  std::lock_guard lock(reason_mutex_);
  throw Failed("{}", reason_);
}

}  // namespace lockstep
