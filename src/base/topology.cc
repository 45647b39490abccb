#include "base/topology.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <type_traits>

#include "base/error.h"

namespace lockstep {
namespace {

// ---- cgroups
// -------------------------------------------------------------------------------------------------

std::optional<uint64_t> ParseUnsigned(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The words of the first line of a file; none where it cannot be read.
std::vector<std::string> FirstLineWords(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  std::string line;
  if (!std::getline(file, line)) return words;
  size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != std::string::npos) {
    size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::vector<std::string> words = FirstLineWords(path);
  return words.empty() ? std::nullopt : ParseUnsigned(words[0]);
}

// The number after `key` in a file of "key number" or "key: number kB" lines.
std::optional<uint64_t> ReadKeyed(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string name, value, line;
  while (file >> name >> value) {
    if (name == key) return ParseUnsigned(value);
    std::getline(file, line);
  }
  return std::nullopt;
}

// Names that differ between the two versions of cgroups.
struct CgroupFiles {
  const char* memory_limit;
  const char* memory_used;
  const char* active_file;
  const char* inactive_file;
};
constexpr CgroupFiles kFilesV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_active_file", "total_inactive_file"};
constexpr CgroupFiles kFilesV2 = {"memory.max", "memory.current", "active_file", "inactive_file"};

// The kernel writes "no limit" in v1 as the largest page-aligned number.
constexpr uint64_t kNoMemoryLimit = uint64_t{1} << 62;

void ReadCpuLimit(const std::string& folder, CgroupLimits* limits) {
  std::optional<uint64_t> quota, period;
  std::vector<std::string> words = FirstLineWords(folder + "/cpu.max");
  if (words.size() == 2) {
    quota = ParseUnsigned(words[0]);  // "max" is no number
    period = ParseUnsigned(words[1]);
  } else {
    quota = ReadNumber(folder + "/cpu.cfs_quota_us");  // -1 is no unsigned number
    period = ReadNumber(folder + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *quota == 0 || *period == 0) return;
  double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
  limits->cpus = std::min(cpus, limits->cpus.value_or(cpus));
}

void ReadMemoryLimit(const std::string& folder, const CgroupFiles& files, CgroupLimits* limits) {
  std::optional<uint64_t> limit = ReadNumber(folder + "/" + files.memory_limit);
  if (!limit || *limit >= kNoMemoryLimit) return;
  if (limits->memory_bytes && *limits->memory_bytes <= *limit) return;
  std::string stat = folder + "/memory.stat";
  uint64_t used = ReadNumber(folder + "/" + files.memory_used).value_or(0);
  for (const char* key : {files.active_file, files.inactive_file}) {
    used -= std::min(used, ReadKeyed(stat, key).value_or(0));
  }
  limits->memory_bytes = limit;
  limits->memory_used_bytes = used;
}

// Calls visit(folder) for the group `path` below `mount` and each group above it.
template <typename Visit>
void ForEachGroup(const std::string& mount, std::string path, Visit visit) {
  // A path from outside the namespace ("/../x") names nothing below the mount.
  if (path.find("..") != std::string::npos) path.clear();
  for (;;) {
    visit(mount + path);
    size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return;
    path.resize(slash);
  }
}

bool ListContains(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == item) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// ---- hwloc
// ---------------------------------------------------------------------------------------------------

struct HwlocFree {
  void operator()(hwloc_topology_t t) const { hwloc_topology_destroy(t); }
  void operator()(hwloc_bitmap_t b) const { hwloc_bitmap_free(b); }
};
using HwlocTopology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, HwlocFree>;
using HwlocBitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, HwlocFree>;

HwlocTopology NewTopology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Failed("topology: out of memory");
  return HwlocTopology(raw);
}

HwlocBitmap BitmapOf(const std::vector<int>& cpus) {
  HwlocBitmap bitmap(hwloc_bitmap_alloc());
  if (bitmap == nullptr) throw Failed("topology: out of memory");
  for (int cpu : cpus) hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(cpu));
  return bitmap;
}

// The CPUs of efficiency cores: those the processor calls so, otherwise those of the lowest of
// several known kinds.
HwlocBitmap SlowCpus(hwloc_topology_t topology) {
  HwlocBitmap slow = BitmapOf({});
  HwlocBitmap kind = BitmapOf({});
  int kinds = hwloc_cpukinds_get_nr(topology, 0);
  for (int i = 0; kinds > 1 && i < kinds; ++i) {
    int efficiency = -1;
    unsigned infos = 0;
    hwloc_info_s* info = nullptr;
    auto index = static_cast<unsigned>(i);
    if (hwloc_cpukinds_get_info(topology, index, kind.get(), &efficiency, &infos, &info, 0) != 0)
      continue;
    bool is_slow = efficiency == 0;
    for (unsigned j = 0; j < infos; ++j) {
      if (std::string_view(info[j].name) == "CoreType") {
        is_slow = std::string_view(info[j].value) == "IntelAtom";
      }
    }
    if (is_slow) hwloc_bitmap_or(slow.get(), slow.get(), kind.get());
  }
  return slow;
}

// Numbers things in the order in which they are first seen.
class Numbering {
 public:
  int Of(unsigned key) {
    auto at = std::find(keys_.begin(), keys_.end(), key);
    if (at == keys_.end()) at = keys_.insert(at, key);
    return static_cast<int>(at - keys_.begin());
  }
  int size() const { return static_cast<int>(keys_.size()); }

 private:
  std::vector<unsigned> keys_;
};

// The CPUs of a loaded topology that are in `allowed` (all where null).
Topology Summarize(hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  Topology result;
  Numbering cores, nodes;
  HwlocBitmap slow = SlowCpus(topology);
  hwloc_obj_t pu = nullptr;
  int thread = 0;
  while ((pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr) {
    if (allowed != nullptr && !hwloc_bitmap_isset(allowed, pu->os_index)) continue;
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    Cpu cpu;
    cpu.id = static_cast<int>(pu->os_index);
    int cores_before = cores.size();
    cpu.core = cores.Of(core != nullptr ? core->logical_index : pu->logical_index);
    thread = cores.size() > cores_before ? 0 : thread + 1;
    cpu.thread = thread;
    int node = pu->nodeset != nullptr ? hwloc_bitmap_first(pu->nodeset) : 0;
    cpu.node = nodes.Of(static_cast<unsigned>(std::max(node, 0)));
    cpu.slow = hwloc_bitmap_isset(slow.get(), pu->os_index) != 0;
    result.cpus.push_back(cpu);
  }
  result.nodes = std::max(1, nodes.size());
  return result;
}

// Where the system tells nothing: as many equal CPUs as the standard library counts.
Topology Flat() {
  Topology result;
  int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int i = 0; i < count; ++i) result.cpus.push_back({.id = i, .core = i});
  return result;
}

std::string Below(const std::string& root, std::string_view path) {
  return (root == "/" ? "" : root) + std::string(path);
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  CgroupLimits limits;
  std::ifstream groups(Below(root, "/proc/self/cgroup"));
  const std::string mount = Below(root, "/sys/fs/cgroup");
  std::string line;
  // Lines are "hierarchy:controllers:path"; v2 has the one line "0::path".
  while (std::getline(groups, line)) {
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      ForEachGroup(mount, path, [&](const std::string& folder) {
        ReadCpuLimit(folder, &limits);
        ReadMemoryLimit(folder, kFilesV2, &limits);
      });
    }
    if (ListContains(controllers, "cpu")) {
      ForEachGroup(mount + "/cpu", path,
                   [&](const std::string& folder) { ReadCpuLimit(folder, &limits); });
    }
    if (ListContains(controllers, "memory")) {
      ForEachGroup(mount + "/memory", path,
                   [&](const std::string& folder) { ReadMemoryLimit(folder, kFilesV1, &limits); });
    }
  }
  return limits;
}

Topology Topology::Detect() {
  Topology result;
  HwlocTopology topology = NewTopology();
  if (hwloc_topology_load(topology.get()) == 0) {
    HwlocBitmap allowed = BitmapOf({});
    bool known =
        hwloc_get_proc_cpubind(topology.get(), getpid(), allowed.get(), HWLOC_CPUBIND_PROCESS) == 0;
    result = Summarize(topology.get(), known ? allowed.get() : nullptr);
  }
  if (result.cpus.empty()) result = Flat();
  result.cpu_quota = ReadCgroupLimits("/").cpus;
  return result;
}

Topology Topology::FromSynthetic(const std::string& description, const std::vector<int>& slow_cpus,
                                 const std::vector<int>& allowed) {
  HwlocTopology topology = NewTopology();
  if (hwloc_topology_set_synthetic(topology.get(), description.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    throw Refused("topology: expected a synthetic description, found '{}'", Printable(description));
  }
  if (!slow_cpus.empty()) {
    HwlocBitmap slow = BitmapOf(slow_cpus);
    HwlocBitmap fast(hwloc_bitmap_dup(hwloc_topology_get_topology_cpuset(topology.get())));
    hwloc_bitmap_andnot(fast.get(), fast.get(), slow.get());
    hwloc_cpukinds_register(topology.get(), slow.get(), 0, 0, nullptr, 0);
    hwloc_cpukinds_register(topology.get(), fast.get(), 1, 0, nullptr, 0);
  }
  HwlocBitmap set = BitmapOf(allowed);
  return Summarize(topology.get(), allowed.empty() ? nullptr : set.get());
}

namespace {

// Fast cores, then efficiency cores, then second hardware threads of either.
int Preference(const Cpu& cpu) { return cpu.thread * 2 + (cpu.slow ? 1 : 0); }

int CountCores(const std::vector<Cpu>& cpus, bool slow) {
  return static_cast<int>(std::count_if(cpus.begin(), cpus.end(), [&](const Cpu& cpu) {
    return cpu.thread == 0 && cpu.slow == slow;
  }));
}

}  // namespace

int Topology::DefaultThreads() const {
  int fast = CountCores(cpus, /*slow=*/false);
  int threads = fast > 0 ? fast : CountCores(cpus, /*slow=*/true);
  if (cpu_quota) threads = static_cast<int>(std::min<double>(threads, std::floor(*cpu_quota)));
  return std::max(1, threads);
}

std::vector<std::vector<int>> Topology::PlaceTeams(const std::vector<int>& threads_per_team) const {
  const size_t teams = threads_per_team.size();
  std::vector<std::vector<int>> placed(teams);
  size_t wanted = 0;
  for (int threads : threads_per_team) wanted += static_cast<size_t>(std::max(0, threads));
  int cores = CountCores(cpus, false) + CountCores(cpus, true);
  if (wanted > cpus.size() || (cpu_quota && *cpu_quota < cores)) return placed;

  std::vector<Cpu> free = cpus;
  for (size_t team = 0; team < teams; ++team) {
    const int home = teams == 1 ? 0 : static_cast<int>(team * static_cast<size_t>(nodes) / teams);
    // Stable: within one preference the machine's order keeps neighbours together.
    std::stable_sort(free.begin(), free.end(), [&](const Cpu& a, const Cpu& b) {
      if (Preference(a) != Preference(b)) return Preference(a) < Preference(b);
      return (a.node == home) > (b.node == home);
    });
    auto count = static_cast<ptrdiff_t>(std::max(0, threads_per_team[team]));
    for (auto cpu = free.begin(); cpu != free.begin() + count; ++cpu)
      placed[team].push_back(cpu->id);
    free.erase(free.begin(), free.begin() + count);
  }
  return placed;
}

std::string Topology::Describe(int threads) const {
  int fast = CountCores(cpus, false);
  int slow = CountCores(cpus, true);
  auto plural = [](int count, std::string_view word) {
    return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
  };
  std::string text =
      fmt::format("{} on {}", plural(threads, "thread"), plural(fast + slow, "core"));
  if (fast > 0 && slow > 0) text += fmt::format(" ({} of them slow)", slow);
  if (nodes > 1) text += fmt::format(", {}", plural(nodes, "NUMA node"));
  if (cpu_quota) text += fmt::format(", CPU quota {:.4g}", *cpu_quota);
  return text;
}

uint64_t TotalMemoryBytes(const std::string& root) {
  uint64_t total = ReadKeyed(Below(root, "/proc/meminfo"), "MemTotal:").value_or(0) * 1024;
  return std::min(total, ReadCgroupLimits(root).memory_bytes.value_or(total));
}

uint64_t AvailableMemoryBytes(const std::string& root) {
  uint64_t available = ReadKeyed(Below(root, "/proc/meminfo"), "MemAvailable:").value_or(0) * 1024;
  CgroupLimits limits = ReadCgroupLimits(root);
  if (!limits.memory_bytes) return available;
  uint64_t used = std::min(*limits.memory_bytes, limits.memory_used_bytes.value_or(0));
  return std::min(available, *limits.memory_bytes - used);
}

}  // namespace lockstep
