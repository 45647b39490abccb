// The rate at which a team multiplies 8-bit integers: the yardstick of every prompt speed.
#pragma once

#include "base/thread_team.h"
#include "simd/isa.h"

namespace lockstep {

// Operations per second (a multiplication and an addition are two) of the instruction set's product
// of bytes, on registers alone; the best of several passes in about 0.1 s. Not to be called from
// inside Run().
double MeasureIntegerPeak(ThreadTeam& team, Isa isa);

}  // namespace lockstep
