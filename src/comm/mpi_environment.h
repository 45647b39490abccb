// What mpirun tells a process before any library is asked.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace lockstep {

// The first of these variables that is set, 1 where none is.
inline int MpiCount(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const char* text = std::getenv(variable)) return std::max(1, std::atoi(text));
  }
  return 1;
}

// Processes that this one was started with, and those of them on this host; 1: it was started alone.
inline int MpiProcesses() { return MpiCount({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}); }
inline int MpiLocalProcesses() {
  return MpiCount({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
}

}  // namespace lockstep
