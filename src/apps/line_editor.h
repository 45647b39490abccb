// Lines that a person types: edited and remembered on a terminal, taken as they come elsewhere.
#pragma once

#include <memory>
#include <string>

namespace lockstep {

enum class LineEnd {
  kLine,         // a line was read
  kEndOfInput,   // Ctrl-D, or the end of a file
  kInterrupted,  // Ctrl-C; the caller clears it
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  // Reads the next line, without its line end, into `line`. On a terminal `prompt` stands before
  // it. Throws Refused for a line beyond kMaxInputBytes and for input that cannot be read.
  virtual LineEnd Read(const std::string& prompt, std::string* line) = 0;
};

// Lines of stdin as they are.
std::unique_ptr<LineSource> MakePlainLines();

// Lines of the terminal, with libedit. `history`: the file in which they are kept, private to its
// owner and made with its folder where it does not exist; empty: kept in memory only. A history
// that cannot be read or written costs one warning.
std::unique_ptr<LineSource> MakeEditedLines(std::string history);

// Where history is kept by default: $XDG_STATE_HOME/lockstep/history, else below
// ~/.local/state; empty where there is no home.
std::string DefaultHistoryFile();

}  // namespace lockstep
