// What mpirun tells a process before any library is asked.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace lockstep {

// Processes that this one was started with; 1: it was started alone.
inline int MpiProcesses() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    if (const char* text = std::getenv(variable)) return std::max(1, std::atoi(text));
  }
  return 1;
}

}  // namespace lockstep
