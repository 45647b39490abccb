#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/progress.h"

namespace lockstep {
namespace {

struct LevelRow {
  spdlog::level::level_enum spdlog_level;
  std::string_view name;    // in JSON
  std::string_view prefix;  // in plain text
};
// Indexed by LogLevel.
constexpr std::array<LevelRow, 6> kLevels = {{{spdlog::level::off, "none", ""},
                                              {spdlog::level::err, "error", ""},
                                              {spdlog::level::warn, "warning", ""},
                                              {spdlog::level::info, "info", ""},
                                              {spdlog::level::debug, "debug", "debug: "},
                                              {spdlog::level::trace, "trace", "trace: "}}};

struct State {
  std::shared_ptr<spdlog::logger> logger;
  bool json_lines = false;
  bool to_stderr = true;
};

std::mutex g_mutex;
std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};

// spdlog would make missing folders; a mistyped path must not.
void RequireWritable(const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr)
    throw Refused("--log-file: {}: {}", Printable(path, 4096), SystemErrorText(errno));
  std::fclose(file);
}

std::shared_ptr<spdlog::logger> MakeLogger(const LogOptions& options) {
  spdlog::sink_ptr sink;
  try {
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      RequireWritable(options.file);
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
  } catch (const spdlog::spdlog_ex& error) {
    throw Refused("--log-file: {}", Printable(error.what(), 4096));
  }
  auto logger = std::make_shared<spdlog::logger>("lockstep", std::move(sink));
  // Which messages are shown is decided before they are formatted (LogEnabled).
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  logger->set_error_handler([](const std::string&) {});
  auto time_type =
      options.json_lines ? spdlog::pattern_time_type::utc : spdlog::pattern_time_type::local;
  std::string pattern = options.timestamps ? "%Y-%m-%d %H:%M:%S.%e lockstep: %v" : "lockstep: %v";
  if (options.json_lines) pattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ",%v})";
  logger->set_pattern(pattern, time_type);
  return logger;
}

State& GlobalState() {
  static State state{MakeLogger({}), false, true};
  return state;
}

std::string JsonFields(LogLevel level, std::string_view text) {
  // Control characters and bytes that are no UTF-8 become \xNN first, so that only quotes and
  // backslashes are left.
  std::string escaped;
  for (char c : Printable(text, std::numeric_limits<size_t>::max())) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return fmt::format(R"("level":"{}","text":"{}")", kLevels[static_cast<size_t>(level)].name,
                     escaped);
}

}  // namespace

void ConfigureLog(const LogOptions& options) {
  std::shared_ptr<spdlog::logger> logger = MakeLogger(options);
  std::lock_guard lock(g_mutex);
  GlobalState() = State{std::move(logger), options.json_lines, options.file.empty()};
  g_level.store(static_cast<int>(options.level));
}

bool LogEnabled(LogLevel level) {
  return level != LogLevel::kNone &&
         static_cast<int>(level) <= g_level.load(std::memory_order_relaxed);
}

void LogText(LogLevel level, std::string_view text) {
  if (!LogEnabled(level)) return;
  std::lock_guard lock(g_mutex);
  State& state = GlobalState();
  const LevelRow& row = kLevels[static_cast<size_t>(level)];
  if (state.to_stderr) ClearProgressLine();
  std::string line =
      state.json_lines
          ? JsonFields(level, text)
          : fmt::format("{}{}", row.prefix, Printable(text, std::numeric_limits<size_t>::max()));
  state.logger->log(row.spdlog_level, "{}", line);
}

}  // namespace lockstep
