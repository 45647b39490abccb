// What this process may use of the machine: CPUs, their kinds, NUMA nodes, quota and memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// One logical CPU the process may run on.
struct Cpu {
  int id = 0;         // the system's number, as pinning takes it
  int core = 0;       // physical core, counted from 0 over the usable ones
  int thread = 0;     // 0 for the first usable hardware thread of its core, 1 for the next
  int node = 0;       // NUMA node, counted from 0 over the usable ones
  bool slow = false;  // an efficiency core of a machine with more than one kind
};

// Limits of the control group the process runs in; absent where there is none.
struct CgroupLimits {
  std::optional<double> cpus;            // CPU time per time, 2.5 is two and a half CPUs
  std::optional<uint64_t> memory_bytes;  // the tightest limit
  std::optional<uint64_t>
      memory_used_bytes;  // counted against it, without file cache that can be dropped
};

// Reads /proc/self/cgroup and the files of cgroup v1 and v2 below `root` ("/" outside tests), from
// the process's group up to the top: the tightest limit counts. What cannot be read or understood
// is no limit.
CgroupLimits ReadCgroupLimits(const std::string& root);

struct Topology {
  std::vector<Cpu> cpus;  // in the machine's order: by node, then core, then hardware thread
  int nodes = 1;          // NUMA nodes among them
  std::optional<double> cpu_quota;  // see CgroupLimits::cpus

  // The machine under this process's affinity mask, cgroup set and quota. Always finds at least one
  // CPU.
  static Topology Detect();
  // A machine described in hwloc's synthetic form ("pack:2 [numa] core:4 pu:2"). `slow_cpus` are
  // registered as the less efficient kind; where `allowed` is not empty only those CPUs are usable.
  // Throws Refused for a bad description.
  static Topology FromSynthetic(const std::string& description,
                                const std::vector<int>& slow_cpus = {},
                                const std::vector<int>& allowed = {});

  // One thread for each usable core, without efficiency cores where there are others, within the
  // quota rounded down; at least 1.
  int DefaultThreads() const;

  // CPU ids to pin teams of these sizes to, one list a team. Fast cores come first, then efficiency
  // cores, then second hardware threads; with several teams and nodes, team i lives on node i *
  // nodes / teams as far as it fits. The lists are empty, meaning not pinned, where the threads
  // outnumber the CPUs, and where a quota is smaller than the number of cores: other groups would
  // then be pinned to the same first CPUs.
  std::vector<std::vector<int>> PlaceTeams(const std::vector<int>& threads_per_team) const;

  // "8 threads on 8 of 16 cores, 2 NUMA nodes", for the log; `threads` is what was chosen.
  std::string Describe(int threads) const;
};

// Physical memory, or the cgroup's limit where that is lower; bytes, 0 where unknown.
uint64_t TotalMemoryBytes(const std::string& root = "/");
// What can still be allocated without swapping: the system's estimate, or what the cgroup's limit
// leaves where that is lower; bytes, 0 where unknown.
uint64_t AvailableMemoryBytes(const std::string& root = "/");

}  // namespace lockstep
