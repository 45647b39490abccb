// What the ranks of this process did, step by step.
#pragma once

#include <string>

#include "engine/model.h"

namespace lockstep {

// Of a model opened with LoadOptions::trace, all batches together: for each rank the steps with their times, and a line on steps, barriers and
// collectives.
std::string TraceReport(const Model& model);

}  // namespace lockstep
