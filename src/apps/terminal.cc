#include "apps/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void ThrowOutputError(int error) {
  if (error == EPIPE) throw OutputClosed();
  throw Failed("writing to stdout: {}", error == 0 ? "failed" : SystemErrorText(error));
}

}  // namespace

void PrepareStandardStreams() {
  std::signal(SIGPIPE, SIG_IGN);
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // Opened the wrong way round: reading a closed stdin or writing to a closed stdout stays an
    // error. The lowest free descriptor is this one, since those below it are open by now.
    int opened = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    if (opened < 0) std::_Exit(static_cast<int>(ErrorKind::kFailed));
  }
}

void Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) ThrowOutputError(errno);
}

void FlushOutput() {
  if (std::fflush(stdout) != 0) ThrowOutputError(errno);
}

void FinishOutput() {
  FlushOutput();
  if (std::ferror(stdout) != 0) ThrowOutputError(0);
}

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

int TerminalColumns() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

int HelpColumns() { return StdoutIsTerminal() ? std::clamp(TerminalColumns(), 60, 100) : 100; }

bool UseColor(std::string_view setting) {
  if (setting != "auto") return setting == "on";
  const char* no_color = std::getenv("NO_COLOR");
  return StdoutIsTerminal() && (no_color == nullptr || *no_color == '\0');
}

}  // namespace lockstep
