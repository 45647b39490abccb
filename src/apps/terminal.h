// Standard output and the terminal.
#pragma once

#include <exception>
#include <string_view>

namespace lockstep {

// Thrown where the reader of stdout has gone ("| head"): the program ends quietly.
class OutputClosed : public std::exception {
 public:
  const char* what() const noexcept override { return "the reader of the output has gone"; }
};

// Prepares the process: descriptors 0, 1 and 2 exist even where the caller closed them, so that no
// file that is opened later takes their place, and a reader that goes away is an error of a write
// instead of a signal.
void PrepareStandardStreams();

// Writes a result to stdout, buffered. Throws OutputClosed, or Failed (full disk).
void Print(std::string_view text);

// Makes what was printed visible, for streamed answers. Throws as Print does.
void FlushOutput();

// Flushes stdout and reports every earlier write error on it. Throws as Print does.
void FinishOutput();

bool StdinIsTerminal();
bool StdoutIsTerminal();
bool StderrIsTerminal();

// Columns of the terminal on stdout; 80 where there is none or it does not say.
int TerminalColumns();

// Columns for help: those of the terminal within 60 to 100; 100 where stdout is no terminal.
int HelpColumns();

// Whether to colour stdout, for --color: "on", "off" or "auto" (a terminal, and NO_COLOR unset:
// no-color.org).
bool UseColor(std::string_view setting);

}  // namespace lockstep
