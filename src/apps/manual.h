// Help and the manual page, written from the tables of commands and options.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apps/command.h"

namespace lockstep {

// "lockstep 0.1.0\n"
std::string VersionText();

// What `lockstep help` prints: the commands, where options come from, exit codes. No line is longer
// than `columns`.
std::string OverviewText(std::span<const Command> commands, int columns);

// What `lockstep help COMMAND` prints: usage and every option of the command. `columns` is at least
// 60.
std::string CommandHelp(const Command& command, int columns);

// The manual page in the man macros of roff, with every option of `commands`.
std::string ManPage(std::span<const Command> commands);

// The error for a command that does not exist, with the nearest name.
Error UnknownCommand(std::string_view name);

// Breaks text at blanks into lines of at most `columns`, each after `indent` blanks; a longer word
// stands alone. The first line starts at column `start`, without indentation. Ends with a line end.
std::string WrapText(std::string_view text, int columns, int indent, int start = 0);

}  // namespace lockstep
