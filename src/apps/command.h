// Commands: one row each. A command lives in a file of its own, NAME_command.cc, which defines its
// Run function; it is listed in commands.cc from the day on which that file exists.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apps/options.h"

namespace lockstep {

// The arguments that are no options.
using Positional = std::span<const std::string>;

struct Command {
  Cmd id;
  std::string_view summary;      // one line, without a full stop
  std::string_view usage;        // what follows "lockstep NAME"
  std::string_view description;  // sentences; may be empty
  size_t max_positional;
  // Runs the command. Results go to stdout through Print() (apps/terminal.h), messages through
  // Log() (base/log.h). Returns the exit code 0 or 1; throws Error for everything that is reported
  // in one line.
  int (*run)(const OptionValues& options, Positional positional);
};

// The commands that exist, in the order of help.
std::span<const Command> Commands();

// The row of a command; null where it does not exist.
const Command* FindCommand(std::string_view name);

// Defined in NAME_command.cc.
int RunBench(const OptionValues& options, Positional positional);
int RunChat(const OptionValues& options, Positional positional);
int RunConvert(const OptionValues& options, Positional positional);
int RunImatrix(const OptionValues& options, Positional positional);
int RunInspect(const OptionValues& options, Positional positional);
int RunLogits(const OptionValues& options, Positional positional);
int RunPlan(const OptionValues& options, Positional positional);
int RunPpl(const OptionValues& options, Positional positional);
int RunQuantize(const OptionValues& options, Positional positional);
int RunRun(const OptionValues& options, Positional positional);
int RunSynth(const OptionValues& options, Positional positional);
int RunTokenize(const OptionValues& options, Positional positional);
int RunVerify(const OptionValues& options, Positional positional);

// Runs a command line without the program's name and returns the exit code. Throws Error.
int RunLockstep(std::span<const std::string_view> arguments, const Environment& environment);

// RunLockstep with the process around it: what was printed is flushed and checked, every exception
// becomes one line on stderr and an exit code: 0 done, 1 failed while running, 2 wrong usage or a
// file refused, 130 interrupted. A reader of stdout that went away ("| head") is no failure.
int GuardedMain(std::span<const std::string_view> arguments, const Environment& environment);

}  // namespace lockstep
