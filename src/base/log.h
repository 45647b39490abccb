// Messages for people, on stderr or in a file. Results never pass through here.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// Values are llama.cpp's --verbosity thresholds: a message is shown where its level is at most the
// threshold.
enum class LogLevel : int {
  kNone = 0,
  kError = 1,
  kWarning = 2,
  kInfo = 3,
  kDebug = 4,
  kTrace = 5
};

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  bool timestamps = false;
  // One object a line: {"time":"...Z","level":"info","text":"..."}.
  bool json_lines = false;
  // Where messages go instead of stderr; appended to. Empty: stderr.
  std::string file;
};

// Sets up logging for the process. May be called again. Throws Refused where the file cannot be
// opened.
void ConfigureLog(const LogOptions& options);

bool LogEnabled(LogLevel level);

// Writes one message; line ends and control characters inside it are escaped. Thread-safe; a full
// disk is ignored.
void LogText(LogLevel level, std::string_view text);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogText(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
