// Ranks in several processes, started by mpirun: teams inside each process, MPI-3.1 between them.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// Whether this process was started by mpirun among others, or alone.
bool MpiServes(const GroupOptions& options);
// Throws Refused where the build has no MPI.
std::unique_ptr<RankGroup> ConnectMpi(const GroupOptions& options);

}  // namespace lockstep
