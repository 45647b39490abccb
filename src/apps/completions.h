// Completions for shells, written from the tables of commands and options.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apps/command.h"

namespace lockstep {

// The script for "bash", "zsh" or "fish"; Refused for another shell.
std::string Completions(std::string_view shell, std::span<const Command> commands);

}  // namespace lockstep
