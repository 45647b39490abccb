#include "apps/input.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/file.h"
#include "base/interrupt.h"
#include "comm/communicator.h"

namespace lockstep {
namespace {

// Returns when stdin has something to read, or has ended. A signal restarts read() but never poll(); the
// time limit is for one that comes just before.
void WaitForStdin() {
  constexpr int kPollMilliseconds = 200;
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  while (poll(&input, 1, kPollMilliseconds) <= 0) ThrowIfInterrupted();
  ThrowIfInterrupted();
}

std::string ReadStdin() {
  std::string text;
  // Under mpirun the first process has the input of all.
  if (ThisProcess() != 0) return text;
  char buffer[1 << 16];
  while (true) {
    WaitForStdin();
    ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw Refused("stdin: {}", SystemErrorText(errno));
    if (size == 0) return text;
    if (text.size() + static_cast<size_t>(size) > kMaxInputBytes) {
      throw Refused("stdin: expected at most {} bytes", kMaxInputBytes);
    }
    text.append(buffer, static_cast<size_t>(size));
  }
}

constexpr Opt kTextOptions[] = {Opt::kPrompt, Opt::kFile, Opt::kStdin};

}  // namespace

std::string ReadFileOrStdin(const std::string& path) {
  return path == "-" ? ReadStdin() : ReadFile(path, kMaxInputBytes);
}

std::string ReadInputText(const OptionValues& options) {
  Opt chosen = Opt::kNone;
  bool tie = false;
  for (Opt option : kTextOptions) {
    if (!options.Given(option)) continue;
    if (option == Opt::kStdin && !options.Get<bool>(option)) continue;
    bool higher = chosen == Opt::kNone || options.source(option) > options.source(chosen);
    tie = !higher && (tie || options.source(option) == options.source(chosen));
    if (higher) chosen = option;
  }
  std::string_view command = CommandName(options.command());
  if (chosen == Opt::kNone)
    throw Refused("{}: expected a text: --prompt TEXT or --file FILE", command);
  if (tie)
    throw Refused("{}: expected one text, found several of --prompt, --file and --stdin", command);
  if (chosen == Opt::kStdin) return ReadStdin();
  const std::string& value = options.Get<std::string>(chosen);
  if (chosen == Opt::kFile) return ReadFileOrStdin(value);
  return options.Get<bool>(Opt::kEscape) ? Unescape(value) : value;
}

std::vector<int32_t> ReadTokenIds(const OptionValues& options) {
  std::vector<int32_t> ids;
  for (int64_t id : options.Get<std::vector<int64_t>>(Opt::kTokens))
    ids.push_back(static_cast<int32_t>(id));
  return ids;
}

std::string Unescape(std::string_view text) {
  constexpr std::string_view kLetters = "nrt\"'\\";
  constexpr std::string_view kMeanings = "\n\r\t\"'\\";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    size_t index = next == '\0' ? std::string_view::npos : kLetters.find(next);
    if (index != std::string_view::npos) {
      out += kMeanings[index];
      ++i;
      continue;
    }
    if (next == 'x' && i + 3 < text.size()) {
      unsigned byte = 0;
      const char* digits = text.data() + i + 2;
      if (std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
        out += static_cast<char>(byte);
        i += 3;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

}  // namespace lockstep
