#ifdef LOCKSTEP_MPI
#include "comm/mpi.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "comm/mpi_environment.h"
#include "comm/teams.h"
#include "comm/watch.h"

namespace lockstep {
namespace {

void Check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Failed("mpi: {}: {}", what, Printable(std::string_view(text, static_cast<size_t>(length))));
}

int Count(int64_t count) {
  if (count > INT_MAX)
    throw Failed("mpi: expected messages of at most {} numbers, found {}", INT_MAX, count);
  return static_cast<int>(count);
}

// MPI is begun and ended once in a process, however many groups there are.
class Process {
 public:
  static Process& Get() {
    static Process process;
    return process;
  }

  int number = 0, count = 1;

  // Other threads' reasons to end are those of the watch, which starts once.
  void StartWatch(int first_rank, double lost_after_seconds) {
    if (watch_) return;
    WatchOptions options;
    options.process = number;
    options.names = Collect(MPI_COMM_WORLD, fmt::format("rank {} on {}", first_rank, HostName()));
    options.lost_after_seconds = lost_after_seconds;
    options.from_leader = [this](const std::string& text) {
      return Collect(MPI_COMM_WORLD, text)[0];
    };
    // Whoever waits in a collective cannot be reached, so the process ends from here.
    options.lost = [](const std::string& line, bool first_to_know) {
      const std::string text = fmt::format("lockstep: {}\n", line);
      if (first_to_know) {
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
      }
      ExitAtOnce(static_cast<int>(ErrorKind::kFailed));
    };
    watch_ = std::make_unique<Watch>(std::move(options));
  }
  void Tell(const std::string& line) {
    if (watch_) watch_->Tell(line);
  }

  static std::vector<std::string> Collect(MPI_Comm comm, const std::string& mine) {
    int processes = 0;
    Check(MPI_Comm_size(comm, &processes), "size");
    const int size = Count(std::ssize(mine));
    std::vector<int> sizes(static_cast<size_t>(processes)), places(sizes.size());
    Check(MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm), "gather");
    std::exclusive_scan(sizes.begin(), sizes.end(), places.begin(), 0);
    std::string all(static_cast<size_t>(places.back() + sizes.back()), '\0');
    Check(MPI_Allgatherv(mine.data(), size, MPI_BYTE, all.data(), sizes.data(), places.data(),
                         MPI_BYTE, comm),
          "gather");
    std::vector<std::string> texts;
    for (size_t i = 0; i < sizes.size(); ++i) {
      texts.push_back(all.substr(static_cast<size_t>(places[i]), static_cast<size_t>(sizes[i])));
    }
    return texts;
  }

 private:
  Process() {
    int given = 0;
    // Threads of a team take turns, one at a time.
    Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "start");
    if (given < MPI_THREAD_SERIALIZED) throw Failed("mpi: expected a library for several threads");
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  ~Process() {
    // It waits for all.
    if (!EndsAlone()) MPI_Finalize();
    watch_.reset();
  }

  static std::string HostName() {
    char name[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    MPI_Get_processor_name(name, &length);
    return Printable(std::string_view(name, static_cast<size_t>(length)));
  }

  std::unique_ptr<Watch> watch_;
};

enum class Patience { kBusy, kIdle };

// Starts what `start(request)` asks for and waits for it: busy at first, as a step is short, then leaving the CPU to others, and at
// last asleep, as the next request of a user may be hours away.
template <typename F>
void Finish(const char* what, Patience patience, F start) {
  // Teams of one process take turns in the library.
  static std::mutex mutex;
  constexpr int kBusyTests = 2000, kYieldingTests = 20000;
  MPI_Request request;
  {
    std::lock_guard lock(mutex);
    Check(start(&request), what);
  }
  for (int tests = 0;; ++tests) {
    int done = 0;
    {
      std::lock_guard lock(mutex);
      Check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    }
    if (done) return;
    if (tests > kBusyTests) sched_yield();
    if (patience == Patience::kIdle && tests > kYieldingTests)
      std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

class MpiGroup final : public TeamsGroup {
 public:
  explicit MpiGroup(const GroupOptions& options) : TeamsGroup(options) {
    Process& process = Process::Get();
    Check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "duplicate");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    local_counts_.resize(static_cast<size_t>(process.count));
    Check(MPI_Allgather(&options.local_ranks, 1, MPI_INT, local_counts_.data(), 1, MPI_INT, comm_),
          "gather");
    for (int i = 0; i < process.number; ++i) first_rank_ += local_counts_[static_cast<size_t>(i)];
    ranks_ = std::accumulate(local_counts_.begin(), local_counts_.end(), 0);
    SetRanks(ranks_);
    process.StartWatch(first_rank_, options.lost_after_seconds);
  }
  ~MpiGroup() override { MPI_Comm_free(&comm_); }

  int first_rank() const override { return first_rank_; }
  int ranks() const override { return ranks_; }
  int processes() const override { return Process::Get().count; }
  int process() const override { return Process::Get().number; }
  int process_of(int rank) const override {
    int process = 0;
    for (; rank >= local_counts_[static_cast<size_t>(process)]; ++process)
      rank -= local_counts_[static_cast<size_t>(process)];
    return process;
  }

  void Broadcast(std::string& bytes) override {
    // Most fit into the first message.
    uint64_t size = bytes.size();
    std::memcpy(head_, &size, sizeof(size));
    constexpr size_t kRoom = sizeof(head_) - sizeof(size);
    std::memcpy(head_ + sizeof(size), bytes.data(), std::min(bytes.size(), kRoom));
    Finish("broadcast", Patience::kIdle, [&](MPI_Request* request) {
      return MPI_Ibcast(head_, sizeof(head_), MPI_BYTE, 0, comm_, request);
    });
    std::memcpy(&size, head_, sizeof(size));
    bytes.resize(size);
    if (!leads()) std::memcpy(bytes.data(), head_ + sizeof(size), std::min<size_t>(size, kRoom));
    if (size <= kRoom) return;
    const int rest = Count(static_cast<int64_t>(size - kRoom));
    Finish("broadcast", Patience::kBusy, [&](MPI_Request* request) {
      return MPI_Ibcast(bytes.data() + kRoom, rest, MPI_BYTE, 0, comm_, request);
    });
  }

  std::vector<std::string> Collect(const std::string& mine) override {
    return Process::Collect(comm_, mine);
  }

  void SendToLeader(int from, std::span<std::byte> bytes) override {
    if (from == 0) return;
    if (leads()) TakeMessage(from, kToLeader, bytes);
    if (process() == from) SendMessage(0, kToLeader, bytes);
  }

 private:
  // Tags of messages between ranks follow it.
  static constexpr int kToLeader = 0;

  void SendMessage(int process, int tag, std::span<const std::byte> bytes) {
    const int count = Count(std::ssize(bytes));
    Finish("send", Patience::kBusy, [&](MPI_Request* request) {
      return MPI_Isend(bytes.data(), count, MPI_BYTE, process, tag, comm_, request);
    });
  }
  void TakeMessage(int process, int tag, std::span<std::byte> bytes) {
    const int count = Count(std::ssize(bytes));
    Finish("receive", Patience::kBusy, [&](MPI_Request* request) {
      return MPI_Irecv(bytes.data(), count, MPI_BYTE, process, tag, comm_, request);
    });
  }
  static int TagOf(int from, int to, int tag) {
    LOCKSTEP_CHECK(from < 1024 && to < 1024 && tag < 2047, "{} {} {}", from, to, tag);
    return 1 + (tag << 20 | from << 10 | to);
  }
  void SendAway(int from, int to, int tag, std::span<const std::byte> data) override {
    SendMessage(process_of(to), TagOf(from, to, tag), data);
  }
  void TakeFromAway(int from, int to, int tag, std::span<std::byte> data) override {
    TakeMessage(process_of(from), TagOf(from, to, tag), data);
  }

  void Complete(std::span<const std::byte*> parts, size_t parts_of_rank,
                std::span<const int64_t> bytes, size_t turn) override {
    std::vector<int> counts(local_counts_.size()), places(local_counts_.size());
    int64_t at = 0, entry = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      places[i] = Count(at);
      const int64_t end = entry + local_counts_[i] * static_cast<int64_t>(parts_of_rank);
      for (; entry < end; ++entry) at += bytes[static_cast<size_t>(entry)];
      counts[i] = Count(at - places[i]);
    }
    std::vector<std::byte>& all = all_[turn];
    if (std::ssize(all) < at) all.resize(static_cast<size_t>(at));
    std::byte* to = all.data();
    const auto first = static_cast<size_t>(first_rank_) * parts_of_rank;
    const auto last = first + static_cast<size_t>(local_ranks()) * parts_of_rank;
    for (size_t i = 0; i < bytes.size(); to += bytes[i++]) {
      if (i < first || i >= last) {
        parts[i] = to;
      } else if (bytes[i] != 0) {
        std::memcpy(to, parts[i], static_cast<size_t>(bytes[i]));
      }
    }
    Finish("exchange", Patience::kBusy, [&](MPI_Request* request) {
      return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), counts.data(),
                             places.data(), MPI_BYTE, comm_, request);
    });
  }

  void AbortOthers(std::string_view reason) override {
    Process::Get().Tell(fmt::format("rank {}: {}", first_rank_, reason));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<int> local_counts_;  // ranks of each process
  int first_rank_ = 0, ranks_ = 1;
  std::vector<std::byte> all_[2];
  std::byte head_[4096];
};

}  // namespace

bool MpiServes(const GroupOptions&) { return MpiProcesses() > 1; }

std::unique_ptr<RankGroup> ConnectMpi(const GroupOptions& options) {
  return std::make_unique<MpiGroup>(options);
}

}  // namespace lockstep
#endif
