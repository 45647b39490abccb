// An answer on its way to stdout, and what is said of its speed.
#pragma once

#include <string>

#include "engine/engine.h"

namespace lockstep {

// Prints the answer as it comes and returns its text; Ctrl-C cancels the request. Throws as Print()
// does.
std::string StreamAnswer(Request& request);

// The speeds of a finished request: prompt and answer, how near decoding came to what memory
// allows, which is measured here, and the hash of the last logits.
std::string SpeedReport(Engine& engine, const Summary& summary);

}  // namespace lockstep
