// Collectives between ranks: how one rank's team reads what the others computed.
//
// One primitive carries all of them: Exchange() makes a part of every rank's memory readable to every rank. A reduction is an
// exchange of roots (formats/segment_tree.h) that each rank then combines for itself, a gather an exchange of columns; so a
// transport moves bytes and knows nothing of numbers, and every rank computes the same bits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_team.h"
#include "formats/segment_tree.h"

namespace lockstep {

// What a rank's exchanges cost so far, as its member 0 saw it; waiting for slower ranks counts.
struct ExchangeCounts {
  int64_t exchanges = 0;
  int64_t bytes = 0;  // received from other ranks
  double seconds = 0;
};

// What all ranks gave, as Exchange() gives them.
class RankParts {
 public:
  RankParts(const std::byte* const* data, size_t parts) : data_(data), parts_(parts) {}
  const std::byte* at(size_t rank, size_t part) const { return data_[rank * parts_ + part]; }

 private:
  const std::byte* const* data_;  // [rank, part]
  size_t parts_;
};

// A root among those of all ranks.
struct RootPlace {
  int32_t rank = 0, index = 0;
};

// One result of a reduction.
struct ReduceTerm {
  const float* roots = nullptr;         // this rank's, [root, rows, width]; null where it has none
  std::span<const int32_t> rank_roots;  // how many each rank has, in the order of ranks
  std::span<const RootPlace> order;     // of a sum: all roots as the fold takes them
  const RootFold* fold = nullptr;       // how all of them meet in a sum; null: the largest is taken
  float* out = nullptr;                 // [rows, width]
  int64_t width = 0;
  int64_t out_stride = 0;  // floats between rows of `out`
};

// One rank's end of the collectives. Every member of the rank's team calls them, all ranks in the same order, with the same sizes.
// They throw Failed, on all ranks, where one has given up.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Most parts that a rank may give to one exchange.
  static constexpr size_t kMaxParts = 8;

  // Gives mine[i], and gets the parts of every rank. What members of the team wrote before is in them; they must not change until
  // the next exchange has returned, and the result is valid until then. bytes: [rank, part], the same on every rank.
  RankParts Exchange(int member, std::span<const std::byte* const> mine,
                     std::span<const int64_t> bytes);

  // Sums: columns [columns.begin, columns.end) of every term's `out`. Expects at most kMaxParts terms.
  void Reduce(int member, std::span<const ReduceTerm> terms, int64_t rows, WorkRange columns,
              CombineRootsFn* combine);

  // Puts the ranks' columns side by side: out: [rows, all widths together] from mine: [rows, widths[rank]]. This member copies
  // columns [columns.begin, columns.end) of `out`.
  void Gather(int member, const float* mine, std::span<const int64_t> widths, int64_t rows,
              WorkRange columns, float* out);

  // Hands bytes to one other rank, which takes them in the order they were sent with this tag. The members of the sending team may not
  // write the data before all have returned, those of the receiving team not read it.
  virtual void Send(ThreadTeam& team, int member, int to, int tag,
                    std::span<const std::byte> data) = 0;
  virtual void Receive(ThreadTeam& team, int member, int from, int tag,
                       std::span<std::byte> data) = 0;

  // Releases whoever waits, here and in other ranks, by an exception that holds the reason; no collective works until Restart() of
  // the group. The first reason counts.
  virtual void Abort(std::string_view reason) = 0;

  const ExchangeCounts& counts() const { return counts_; }

 protected:
  virtual RankParts DoExchange(int member, std::span<const std::byte* const> mine,
                               std::span<const int64_t> bytes) = 0;

 private:
  ExchangeCounts counts_;
};

// The ranks that live in this process, and their way to those in others. One thread calls the members here.
class RankGroup {
 public:
  virtual ~RankGroup() = default;

  // Ranks of this process are first_rank() .. first_rank() + local_ranks() - 1 of ranks().
  virtual int first_rank() const = 0;
  virtual int local_ranks() const = 0;
  virtual int ranks() const = 0;
  virtual Communicator& local(int i) = 0;

  // Processes, and this one's number among them. Process 0 leads: it decides what is computed, the others follow.
  virtual int processes() const { return 1; }
  virtual int process() const { return 0; }
  virtual int process_of(int /*rank*/) const { return 0; }
  bool leads() const { return process() == 0; }

  // Hands the leader's bytes to every process.
  virtual void Broadcast(std::string&) {}
  // Every process gets the texts of all, in their order.
  virtual std::vector<std::string> Collect(const std::string& mine) { return {mine}; }
  // Process `from` hands bytes to the leader; other processes pass.
  virtual void SendToLeader(int /*from*/, std::span<std::byte>) {}

  // After an abort, when no member of any rank is inside a collective.
  virtual void Restart() = 0;
};

struct GroupOptions {
  int local_ranks = 1;
  std::vector<int> threads;  // of each local rank's team
  // A process that does not answer for so long counts as lost.
  double lost_after_seconds = 8;
};

// A way to connect ranks.
struct TransportRow {
  std::string_view name;
  // Whether it serves these ranks in the environment that this process was started in; the first row that does is taken.
  bool (*serves)(const GroupOptions&);
  std::unique_ptr<RankGroup> (*create)(const GroupOptions&);
};
std::span<const TransportRow> Transports();

// Processes of the run, this one's number among them, and how many are on this host, as whoever started them says.
int Processes();
int ThisProcess();
int ProcessesOnThisHost();

// Says that this process ends because something failed: its end waits for no other process, and whoever started them ends those.
void EndAlone();
bool EndsAlone();

// The group that this process was started for. Throws Refused where the build lacks what the environment asks for.
std::unique_ptr<RankGroup> ConnectRanks(const GroupOptions& options);

}  // namespace lockstep
