// What mpirun tells a process before any library is asked.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

namespace lockstep {

// The first of these variables that is set, at least `least`; that where none is.
inline int MpiNumber(std::initializer_list<const char*> variables, int least) {
  for (const char* variable : variables) {
    if (const char* text = std::getenv(variable)) return std::max(least, std::atoi(text));
  }
  return least;
}

// Processes that this one was started with, and those of them on this host; 1: it was started alone.
inline int MpiProcesses() { return MpiNumber({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1); }
inline int MpiLocalProcesses() {
  return MpiNumber({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, 1);
}
// This one's number among all.
inline int MpiProcess() { return MpiNumber({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0); }

}  // namespace lockstep
