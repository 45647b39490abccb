// Stands in for mpi.cc where the build has no MPI.
#ifndef LOCKSTEP_MPI
#include "base/error.h"
#include "comm/mpi.h"
#include "comm/mpi_environment.h"

namespace lockstep {

bool MpiServes(const GroupOptions&) { return MpiProcesses() > 1; }

std::unique_ptr<RankGroup> ConnectMpi(const GroupOptions&) {
  throw Refused(
      "mpirun: expected a build with MPI for {} processes, found one without; install OpenMPI's "
      "headers and build again",
      MpiProcesses());
}

}  // namespace lockstep
#endif
