#include "comm/teams.h"

#include <algorithm>

namespace lockstep {

class TeamsGroup::Member final : public Communicator {
 public:
  Member(TeamsGroup& group, int local, int threads)
      : group_(group), local_(local), turns_(static_cast<size_t>(threads)) {}

  int rank() const override { return group_.first_rank() + local_; }
  int ranks() const override { return group_.ranks(); }
  void Abort(std::string_view reason) override {
    group_.Break(reason);
    group_.AbortOthers(reason);
  }
  void Send(ThreadTeam& team, int member, int to, int tag,
            std::span<const std::byte> data) override {
    if (group_.IsLocal(to)) return group_.ChannelOf({rank(), to, tag}).Put(team, member, data);
    team.Barrier();
    if (member == 0) group_.SendAway(rank(), to, tag, data);
    team.Barrier();
  }
  void Receive(ThreadTeam& team, int member, int from, int tag,
               std::span<std::byte> data) override {
    if (group_.IsLocal(from)) return group_.ChannelOf({from, rank(), tag}).Take(team, member, data);
    team.Barrier();
    if (member == 0) group_.TakeFromAway(from, rank(), tag, data);
    team.Barrier();
  }
  void Restart() { std::ranges::fill(turns_, Turn{}); }

 private:
  struct alignas(64) Turn {
    size_t next = 0;
  };

  RankParts DoExchange(int member, std::span<const std::byte* const> mine,
                       std::span<const int64_t> bytes) override {
    size_t& next = turns_[static_cast<size_t>(member)].next;
    const size_t turn = next;
    next = 1 - next;
    std::vector<const std::byte*>& parts = group_.parts_[turn];
    if (member == 0)
      std::ranges::copy(mine, parts.begin() + static_cast<size_t>(rank()) * mine.size());
    group_.meeting_.Meet(local_, [&] { group_.Complete(parts, mine.size(), bytes, turn); });
    return {parts.data(), mine.size()};
  }

  TeamsGroup& group_;
  const int local_;
  std::vector<Turn> turns_;  // of each member
};

TeamsGroup::TeamsGroup(const GroupOptions& options) : meeting_(options.threads) {
  for (int i = 0; i < options.local_ranks; ++i) {
    members_.push_back(std::make_unique<Member>(*this, i, options.threads[static_cast<size_t>(i)]));
  }
  SetRanks(options.local_ranks);
}
TeamsGroup::~TeamsGroup() = default;

void TeamsGroup::SetRanks(int ranks) {
  for (auto& parts : parts_)
    parts.assign(static_cast<size_t>(ranks) * Communicator::kMaxParts, nullptr);
}

int TeamsGroup::local_ranks() const { return static_cast<int>(members_.size()); }
Communicator& TeamsGroup::local(int i) { return *members_[static_cast<size_t>(i)]; }

Channel& TeamsGroup::ChannelOf(const Route& route) {
  std::lock_guard lock(channels_mutex_);
  Channel& channel = channels_[route];
  if (!broken_.empty()) channel.Break(broken_);
  return channel;
}

void TeamsGroup::Break(std::string_view reason) {
  meeting_.Break(reason);
  std::lock_guard lock(channels_mutex_);
  if (broken_.empty()) broken_ = reason;
  for (auto& [route, channel] : channels_) channel.Break(broken_);
}

void TeamsGroup::Restart() {
  meeting_.Restart();
  channels_.clear();
  broken_.clear();
  for (auto& member : members_) member->Restart();
}

}  // namespace lockstep
