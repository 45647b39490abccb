// What it costs to meet in this process, bytes aside: the yardsticks of plans.
#pragma once

#include "base/function_ref.h"
#include "base/thread_team.h"

namespace lockstep {

// What `measure` finds on a pinned team, on a thread of its own: the caller of a pinned team is pinned with it.
double OnPinnedTeam(int threads, FunctionRef<double(ThreadTeam&)> measure);

// Seconds of an exchange of a few bytes between two ranks of one thread each, in about 0.05 s.
double MeasureExchangeLatency();

// Seconds of a barrier of the team, the best of several passes in a few milliseconds; about nothing for a team of one. Not to be called from
// inside Run().
double MeasureBarrier(ThreadTeam& team);

}  // namespace lockstep
