// A progress bar on stderr, drawn on a terminal only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

enum class ProgressUnit { kItems, kBytes, kTokens };

// What a bar shows. `total` 0 means unknown: no bar, share or time left.
struct ProgressState {
  uint64_t done = 0;
  uint64_t total = 0;
  double elapsed_s = 0;
};

// One line of at most `width` columns, without line ends: "loading [=====>    ] 42% 1.2/2.9 GiB 310
// MiB/s 0:05 left". Where the terminal is narrow the bar goes first, then the text is cut.
std::string ProgressLine(std::string_view label, ProgressUnit unit, const ProgressState& state,
                         int width);

struct ProgressOptions {
  ProgressUnit unit = ProgressUnit::kItems;
  FILE* stream = stderr;
  // Unset: drawn where the stream is a terminal and SetProgressEnabled(false) was not called.
  std::optional<bool> enabled;
};

// Shows how far one piece of work is; the line is cleared when the object dies. Add and Set may be
// called by any thread, cost one atomic operation when nothing is drawn, and draw at most ten times
// a second.
class Progress {
 public:
  Progress(std::string label, uint64_t total, ProgressOptions options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void Add(uint64_t amount);
  void Set(uint64_t done);
  // What stands before the bar from the next drawing on.
  void SetLabel(std::string label);
  bool enabled() const { return enabled_; }
  // How often the line was drawn.
  int redraws() const { return redraws_.load(); }

 private:
  using Clock = std::chrono::steady_clock;
  void DrawIfDue(uint64_t done);

  std::string label_;  // guarded by draw_mutex_
  const uint64_t total_;
  const ProgressUnit unit_;
  FILE* const stream_;
  const bool enabled_;
  const Clock::time_point start_;
  std::atomic<uint64_t> done_{0};
  std::atomic<int64_t> next_draw_ns_{0};
  std::atomic<int> redraws_{0};
  std::mutex draw_mutex_;
};

// Turns bars off for the whole process (--no-progress, --quiet).
void SetProgressEnabled(bool enabled);

// Clears a bar that stands on stderr, so that a message starts on a line of its own. The bar comes
// back by itself.
void ClearProgressLine();

}  // namespace lockstep
