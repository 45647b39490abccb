// Ranks as teams of threads in one process: parts are read where they lie.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/channel.h"
#include "comm/communicator.h"
#include "comm/meeting.h"

namespace lockstep {

class TeamsGroup : public RankGroup {
 public:
  explicit TeamsGroup(const GroupOptions& options);
  ~TeamsGroup() override;

  int first_rank() const override { return 0; }
  int local_ranks() const override;
  int ranks() const override { return local_ranks(); }
  Communicator& local(int i) override;
  void Restart() override;

 protected:
  // Makes room for the parts of so many ranks, of all processes.
  void SetRanks(int ranks);
  // Where the parts of all ranks will be read: [rank, part]. A transport between processes fills in the entries of other
  // processes' ranks; called by one thread while all wait. `turn`: 0 and 1 in turn, as memory of the last exchange is still read.
  virtual void Complete(std::span<const std::byte*> /*parts*/, size_t /*parts_of_rank*/,
                        std::span<const int64_t> /*bytes*/, size_t /*turn*/) {}
  // Hands bytes to, or takes them from, a rank of another process; called by one thread of a rank's team.
  virtual void SendAway(int /*from*/, int /*to*/, int /*tag*/, std::span<const std::byte>) {}
  virtual void TakeFromAway(int /*from*/, int /*to*/, int /*tag*/, std::span<std::byte>) {}
  // Tells other processes that this one has given up.
  virtual void AbortOthers(std::string_view /*reason*/) {}

 private:
  class Member;
  struct Route {
    int from, to, tag;
    auto operator<=>(const Route&) const = default;
  };

  bool IsLocal(int rank) const {
    return rank >= first_rank() && rank < first_rank() + local_ranks();
  }
  Channel& ChannelOf(const Route& route);
  void Break(std::string_view reason);

  std::vector<std::unique_ptr<Member>> members_;
  Meeting meeting_;
  std::vector<const std::byte*> parts_[2];  // [rank, part]
  std::mutex channels_mutex_;
  std::map<Route, Channel> channels_;
  std::string broken_;  // why, where the group is
};

}  // namespace lockstep
