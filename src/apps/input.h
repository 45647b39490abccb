// Text that a command reads: --prompt, --file, stdin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/options.h"

namespace lockstep {

// More text than this is no input of one command.
inline constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;

// The bytes of a file, or of stdin where `path` is "-". Refused where they are more than
// kMaxInputBytes or cannot be read.
std::string ReadFileOrStdin(const std::string& path);

// The text of a command: --prompt (with escapes read where --escape is on), --file or --stdin.
// Where several are given the one of the highest source counts; Refused where that does not decide,
// or where there is none.
std::string ReadInputText(const OptionValues& options);

// The ids of --tokens, which the user gave.
std::vector<int32_t> ReadTokenIds(const OptionValues& options);

// \n \r \t \" \' \\ and \xNN become what they stand for; other backslashes stay.
std::string Unescape(std::string_view text);

}  // namespace lockstep
