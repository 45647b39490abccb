#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A file tree below a temporary folder, removed with the object.
class FakeRoot {
 public:
  explicit FakeRoot(const std::map<std::string, std::string>& files) {
    std::string name = (fs::temp_directory_path() / "lockstep-root-XXXXXX").string();
    path_ = mkdtemp(name.data());
    for (const auto& [file, content] : files) {
      fs::path full = path_ + "/" + file;
      fs::create_directories(full.parent_path());
      std::ofstream(full) << content;
    }
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  ~FakeRoot() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct CgroupCase {
  const char* name;
  std::map<std::string, std::string> files;
  std::optional<double> cpus;
  std::optional<uint64_t> memory;
  std::optional<uint64_t> used;
};

const CgroupCase kCgroupCases[] = {
    {"no cgroups at all", {}, {}, {}, {}},
    {"v2 without limits",
     {{"proc/self/cgroup", "0::/\n"},
      {"sys/fs/cgroup/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/memory.max", "max\n"}},
     {},
     {},
     {}},
    {"v2 at the top of a namespace",
     {{"proc/self/cgroup", "0::/\n"},
      {"sys/fs/cgroup/cpu.max", "250000 100000\n"},
      {"sys/fs/cgroup/memory.max", "1000000\n"},
      {"sys/fs/cgroup/memory.current", "600000\n"},
      {"sys/fs/cgroup/memory.stat", "anon 100\ninactive_file 100000\nactive_file 50000\n"}},
     2.5,
     1000000,
     450000},
    {"v2 where a parent is tighter",
     {{"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
      {"sys/fs/cgroup/a/b/memory.max", "5000\n"},
      {"sys/fs/cgroup/a/memory.max", "9000\n"}},
     3.0,
     5000,
     0},
    {"v2 path that the mount does not show",
     {{"proc/self/cgroup", "0::/../../x\n"}, {"sys/fs/cgroup/cpu.max", "150000 100000\n"}},
     1.5,
     {},
     {}},
    {"v1",
     {{"proc/self/cgroup", "4:memory:/d\n3:cpuset:/\n2:cpu,cpuacct:/d\n0::/\n"},
      {"sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "50000\n"},
      {"sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/d/memory.limit_in_bytes", "7000\n"},
      {"sys/fs/cgroup/memory/d/memory.usage_in_bytes", "3000\n"},
      {"sys/fs/cgroup/memory/d/memory.stat", "total_inactive_file 1000\ntotal_active_file 9000\n"}},
     0.5,
     7000,
     0},
    {"v1 without limits",
     {{"proc/self/cgroup", "2:cpuacct:/\n1:cpu:/\n4:memory:/\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}},
     {},
     {},
     {}},
    {"nonsense",
     {{"proc/self/cgroup", "\n:\n::\nx\n0::\n"},
      {"sys/fs/cgroup/cpu.max", "1e5 0x10\n"},
      {"sys/fs/cgroup/memory.max", "99999999999999999999999\n"}},
     {},
     {},
     {}},
    {"a period of zero",
     {{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "100000 0\n"}},
     {},
     {},
     {}},
};

TEST(Cgroup, ReadsTheTightestLimitOfEitherVersion) {
  for (const CgroupCase& c : kCgroupCases) {
    FakeRoot root(c.files);
    CgroupLimits limits = ReadCgroupLimits(root.path());
    EXPECT_EQ(limits.cpus, c.cpus) << c.name;
    EXPECT_EQ(limits.memory_bytes, c.memory) << c.name;
    EXPECT_EQ(limits.memory_used_bytes, c.used) << c.name;
  }
}

TEST(Memory, HonoursTheCgroupLimitBelowTheMachine) {
  std::map<std::string, std::string> files = {
      {"proc/meminfo", "MemTotal:       1000 kB\nMemFree:  5 kB\nMemAvailable:    600 kB\n"},
      {"proc/self/cgroup", "0::/\n"},
      {"sys/fs/cgroup/memory.current", "100000\n"}};
  struct {
    const char* limit;
    uint64_t total;
    uint64_t available;
  } cases[] = {{"max", 1024000, 614400},
               {"512000", 512000, 412000},
               {"900000", 900000, 614400},
               {"50000", 50000, 0},
               {"5000000", 1024000, 614400}};
  for (const auto& c : cases) {
    files["sys/fs/cgroup/memory.max"] = c.limit;
    FakeRoot root(files);
    EXPECT_EQ(TotalMemoryBytes(root.path()), c.total) << c.limit;
    EXPECT_EQ(AvailableMemoryBytes(root.path()), c.available) << c.limit;
  }
  FakeRoot empty({});
  EXPECT_EQ(TotalMemoryBytes(empty.path()), 0u);
  EXPECT_EQ(AvailableMemoryBytes(empty.path()), 0u);
}

TEST(Memory, OfThisMachineIsKnown) {
  EXPECT_GT(AvailableMemoryBytes(), 0u);
  EXPECT_LE(AvailableMemoryBytes(), TotalMemoryBytes());
}

struct ThreadsCase {
  const char* synthetic;
  std::vector<int> slow;
  std::vector<int> allowed;
  std::optional<double> quota;
  int threads;
};

TEST(Topology, DefaultsToOneThreadForEachFastCoreWithinTheQuota) {
  const ThreadsCase cases[] = {
      {"core:4 pu:1", {}, {}, {}, 4},
      {"core:4 pu:2", {}, {}, {}, 4},
      {"pack:2 [numa] core:8 pu:2", {}, {}, {}, 16},
      {"core:4 pu:2", {}, {0, 1}, {}, 1},
      {"core:4 pu:2", {}, {1, 3, 5}, {}, 3},
      {"core:8 pu:1", {4, 5, 6, 7}, {}, {}, 4},
      {"core:8 pu:1", {4, 5, 6, 7}, {5, 6, 7}, {}, 3},
      {"core:8 pu:1", {}, {}, 3.9, 3},
      {"core:8 pu:1", {}, {}, 0.5, 1},
      {"core:2 pu:1", {}, {}, 64.0, 2},
  };
  for (const ThreadsCase& c : cases) {
    Topology topology = Topology::FromSynthetic(c.synthetic, c.slow, c.allowed);
    topology.cpu_quota = c.quota;
    EXPECT_EQ(topology.DefaultThreads(), c.threads)
        << c.synthetic << ", " << c.allowed.size() << " allowed, quota " << c.quota.value_or(0);
  }
}

using Teams = std::vector<std::vector<int>>;

TEST(Topology, PlacesTeamsOnFastCoresThenSlowCoresThenSiblings) {
  Topology smt = Topology::FromSynthetic("core:4 pu:2");
  EXPECT_EQ(smt.PlaceTeams({4}), (Teams{{0, 2, 4, 6}}));
  EXPECT_EQ(smt.PlaceTeams({2, 2}), (Teams{{0, 2}, {4, 6}}));
  EXPECT_EQ(smt.PlaceTeams({5}), (Teams{{0, 2, 4, 6, 1}}));
  EXPECT_EQ(smt.PlaceTeams({9}), Teams{{}});

  Topology hybrid = Topology::FromSynthetic("core:4 pu:1", {0, 1});
  EXPECT_EQ(hybrid.PlaceTeams({2}), (Teams{{2, 3}}));
  EXPECT_EQ(hybrid.PlaceTeams({3}), (Teams{{2, 3, 0}}));
}

TEST(Topology, SpreadsTeamsOverNumaNodes) {
  Topology topology = Topology::FromSynthetic("pack:2 [numa] core:4 pu:1");
  EXPECT_EQ(topology.nodes, 2);
  EXPECT_EQ(topology.PlaceTeams({2, 2}), (Teams{{0, 1}, {4, 5}}));
  EXPECT_EQ(topology.PlaceTeams({2, 2, 2, 2}), (Teams{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(topology.PlaceTeams({6, 2}), (Teams{{0, 1, 2, 3, 4, 5}, {6, 7}}));
  EXPECT_EQ(topology.PlaceTeams({8}), (Teams{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

TEST(Topology, DoesNotPinUnderAQuotaSmallerThanTheMachine) {
  Topology topology = Topology::FromSynthetic("core:8 pu:1");
  topology.cpu_quota = 2.0;
  EXPECT_EQ(topology.PlaceTeams({2}), Teams{{}});
  topology.cpu_quota = 8.0;
  EXPECT_EQ(topology.PlaceTeams({2}), (Teams{{0, 1}}));
}

TEST(Topology, DescribesTheChoiceInOneLine) {
  Topology topology = Topology::FromSynthetic("pack:2 [numa] core:4 pu:2", {0, 1});
  topology.cpu_quota = 2.5;
  EXPECT_EQ(topology.Describe(2),
            "2 threads on 8 cores (1 of them slow), 2 NUMA nodes, CPU quota 2.5");
  EXPECT_EQ(Topology::FromSynthetic("core:1 pu:1").Describe(1), "1 thread on 1 core");
}

TEST(Topology, RefusesABadDescription) { EXPECT_THROW(Topology::FromSynthetic("core:\n"), Error); }

TEST(Topology, DetectsTheAffinityMaskOfThisProcess) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  Topology topology = Topology::Detect();
  EXPECT_EQ(static_cast<int>(topology.cpus.size()), CPU_COUNT(&allowed));
  for (const Cpu& cpu : topology.cpus) EXPECT_TRUE(CPU_ISSET(cpu.id, &allowed)) << cpu.id;
  EXPECT_GE(topology.DefaultThreads(), 1);
}

}  // namespace
}  // namespace lockstep
