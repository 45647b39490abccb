// The memory bandwidth a team can read with: the yardstick of every one-token speed.
#pragma once

#include <cstdint>

#include "base/thread_team.h"

namespace lockstep {

// What the probe reads by default: well over any cache that a team shares.
inline constexpr uint64_t kBandwidthProbeBytes = uint64_t{256} << 20;

// Bytes per second that the team reads from memory, the best of several passes in about 0.15 s
// after the buffer was first touched. The buffer is `bytes`, less where memory is short. Not to be
// called from inside Run().
double MeasureReadBandwidth(ThreadTeam& team, uint64_t bytes = kBandwidthProbeBytes);

}  // namespace lockstep
