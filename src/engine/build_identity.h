// Which build this program is.
#pragma once

#include <string>

namespace lockstep {

// SHA-256 of the running program's file, "unknown" where it cannot be read. Bits do not depend on the build, but what processes tell
// each other does.
std::string BuildIdentity();

}  // namespace lockstep
