#include "base/interrupt.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "base/error.h"

namespace lockstep {
namespace {

// Signal handlers may touch lock-free atomics only.
std::atomic<int> g_signals{0};
std::array<std::atomic<const char*>, kMaxInterruptFiles> g_files{};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<const char*>::is_always_lock_free);

void OnSignal(int) {
  int saved_errno = errno;
  if (g_signals.fetch_add(1) >= 1) ExitAtOnce(static_cast<int>(ErrorKind::kInterrupted));
  errno = saved_errno;
}

}  // namespace

void ExitAtOnce(int code) {
  for (std::atomic<const char*>& file : g_files) {
    if (const char* path = file.load()) unlink(path);
  }
  _exit(code);
}

void InstallInterruptHandler() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  // Restarted, so that a half-written line on stdout is not lost; waiting for input is done with
  // poll(), which always returns.
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_signals.load(std::memory_order_relaxed) > 0; }

void ThrowIfInterrupted() {
  if (Interrupted()) throw Error(ErrorKind::kInterrupted, "interrupted");
}

void ClearInterrupt() { g_signals.store(0); }

RemoveOnInterrupt::RemoveOnInterrupt(const char* path) {
  for (int i = 0; i < kMaxInterruptFiles; ++i) {
    const char* free_slot = nullptr;
    if (g_files[static_cast<size_t>(i)].compare_exchange_strong(free_slot, path)) {
      slot_ = i;
      return;
    }
  }
}

RemoveOnInterrupt::~RemoveOnInterrupt() {
  if (slot_ >= 0) g_files[static_cast<size_t>(slot_)].store(nullptr);
}

}  // namespace lockstep
