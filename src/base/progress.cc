#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::nanoseconds kRedrawPeriod = std::chrono::milliseconds(100);
constexpr int kMaxBarColumns = 30;
constexpr int kMinBarColumns = 8;
constexpr std::string_view kClearLine = "\r\x1b[K";

std::atomic<bool> g_enabled{true};
std::atomic<bool> g_line_on_stderr{false};

std::string Amount(double value, ProgressUnit unit) {
  if (unit != ProgressUnit::kBytes) return fmt::format("{:.{}f}", value, value < 10 ? 1 : 0);
  constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  for (; value >= 1024 && i + 1 < std::size(kNames); ++i) value /= 1024;
  return fmt::format("{:.{}f} {}", value, i == 0 || value >= 100 ? 0 : 1, kNames[i]);
}

std::string Whole(uint64_t value, ProgressUnit unit) {
  return unit == ProgressUnit::kBytes ? Amount(static_cast<double>(value), unit)
                                      : fmt::format("{}", value);
}

std::string Duration(double seconds) {
  // Past four days nobody reads the minutes.
  auto s = static_cast<uint64_t>(std::clamp(std::ceil(seconds), 0.0, 359999.0));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

int StreamColumns(FILE* stream) {
  winsize size = {};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool StreamIsTerminal(FILE* stream) { return isatty(fileno(stream)) == 1; }

}  // namespace

std::string ProgressLine(std::string_view label, ProgressUnit unit, const ProgressState& state,
                         int width) {
  std::string_view per = unit == ProgressUnit::kTokens ? " tokens/s" : "/s";
  double rate = state.elapsed_s > 0 ? static_cast<double>(state.done) / state.elapsed_s : 0;
  std::string tail = Whole(state.done, unit);
  std::string bar;
  if (state.total > 0) {
    uint64_t done = std::min(state.done, state.total);
    double share = static_cast<double>(done) / static_cast<double>(state.total);
    tail = fmt::format("{:3.0f}% {}/{}", std::floor(share * 100), tail, Whole(state.total, unit));
    if (rate > 0) tail += fmt::format(" {}{}", Amount(rate, unit), per);
    if (rate > 0 && done < state.total) {
      tail += fmt::format(" {} left", Duration(static_cast<double>(state.total - done) / rate));
    }
    int room = width - static_cast<int>(label.size() + tail.size()) - 4;
    if (room >= kMinBarColumns) {
      auto columns = static_cast<size_t>(std::min(room, kMaxBarColumns));
      auto filled = static_cast<size_t>(share * static_cast<double>(columns));
      bar = std::string(filled, '=');
      if (filled < columns) bar += '>';
      bar.resize(columns, ' ');
      bar = fmt::format("[{}] ", bar);
    }
  } else if (rate > 0) {
    tail += fmt::format(" {}{}", Amount(rate, unit), per);
  }
  std::string line = fmt::format("{} {}{}", label, bar, tail);
  if (line.size() > static_cast<size_t>(std::max(width, 0)))
    line.resize(static_cast<size_t>(std::max(width, 0)));
  return line;
}

Progress::Progress(std::string label, uint64_t total, ProgressOptions options)
    : label_(std::move(label)),
      total_(total),
      unit_(options.unit),
      stream_(options.stream),
      enabled_(options.enabled.value_or(g_enabled.load() && StreamIsTerminal(options.stream))),
      start_(Clock::now()) {}

Progress::~Progress() {
  if (redraws_.load() == 0) return;
  std::fwrite(kClearLine.data(), 1, kClearLine.size(), stream_);
  std::fflush(stream_);
  if (stream_ == stderr) g_line_on_stderr.store(false);
}

void Progress::Add(uint64_t amount) {
  DrawIfDue(done_.fetch_add(amount, std::memory_order_relaxed) + amount);
}

void Progress::Set(uint64_t done) {
  done_.store(done, std::memory_order_relaxed);
  DrawIfDue(done);
}

void Progress::SetLabel(std::string label) {
  std::lock_guard lock(draw_mutex_);
  label_ = std::move(label);
}

void Progress::DrawIfDue(uint64_t done) {
  if (!enabled_) return;
  std::chrono::nanoseconds elapsed = Clock::now() - start_;
  int64_t due = next_draw_ns_.load(std::memory_order_relaxed);
  if (elapsed.count() < due) return;
  // Whoever moves the due time draws; the others go on working.
  if (!next_draw_ns_.compare_exchange_strong(due, (elapsed + kRedrawPeriod).count())) return;
  std::lock_guard lock(draw_mutex_);
  ProgressState state{done, total_, std::chrono::duration<double>(elapsed).count()};
  // The last column stays free: some terminals wrap when it is written.
  std::string line =
      fmt::format("\r{}\x1b[K", ProgressLine(label_, unit_, state, StreamColumns(stream_) - 1));
  std::fwrite(line.data(), 1, line.size(), stream_);
  std::fflush(stream_);
  redraws_.fetch_add(1);
  if (stream_ == stderr) g_line_on_stderr.store(true);
}

void SetProgressEnabled(bool enabled) { g_enabled.store(enabled); }

void ClearProgressLine() {
  if (!g_line_on_stderr.exchange(false)) return;
  std::fwrite(kClearLine.data(), 1, kClearLine.size(), stderr);
}

}  // namespace lockstep
