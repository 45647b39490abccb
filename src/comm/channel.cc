#include "comm/channel.h"

#include <algorithm>

#include "base/error.h"
#include "base/spin_wait.h"

namespace lockstep {
namespace {

constexpr uint32_t kBroken = 1;
constexpr uint32_t kPiece = 2;
constexpr int kSpins = 200;

// This member's part of a copy.
void CopyShare(const std::byte* from, std::byte* to, size_t bytes, int member, int members) {
  const WorkRange share = ShareOf(static_cast<int64_t>(bytes), 4096, member, members);
  std::copy_n(from + share.begin, share.size(), to + share.begin);
}

}  // namespace

void Channel::AwaitPast(const std::atomic<uint32_t>& count, uint32_t from) {
  uint32_t now = count.load(std::memory_order_acquire);
  while (static_cast<int32_t>(now - from) <= 0 && (now & kBroken) == 0)
    now = WaitWhile(count, now, kSpins);
  if ((now & kBroken) == 0) return;
  std::lock_guard lock(reason_mutex_);
  throw Failed("{}", reason_);
}

void Channel::Put(ThreadTeam& team, int member, std::span<const std::byte> data) {
  const uint32_t at = put_.load(std::memory_order_acquire);
  std::vector<std::byte>& piece = pieces_[at / kPiece % pieces_.size()];
  if (member == 0) {
    // The piece before the last must have been taken.
    AwaitPast(taken_, at - 2 * kPiece);
    piece.resize(data.size());
  }
  team.Barrier();
  CopyShare(data.data(), piece.data(), data.size(), member, team.size());
  team.Barrier();
  if (member != 0) return;
  put_.fetch_add(kPiece);
  put_.notify_all();
}

void Channel::Take(ThreadTeam& team, int member, std::span<std::byte> data) {
  const uint32_t at = taken_.load(std::memory_order_acquire);
  AwaitPast(put_, at);
  const std::vector<std::byte>& piece = pieces_[at / kPiece % pieces_.size()];
  LOCKSTEP_CHECK(piece.size() == data.size(), "{} of {} bytes", data.size(), piece.size());
  CopyShare(piece.data(), data.data(), data.size(), member, team.size());
  team.Barrier();
  if (member != 0) return;
  taken_.fetch_add(kPiece);
  taken_.notify_all();
}

void Channel::Break(std::string_view reason) {
  {
    std::lock_guard lock(reason_mutex_);
    if (reason_.empty()) reason_ = reason;
  }
  for (auto* count : {&put_, &taken_}) {
    count->fetch_or(kBroken);
    count->notify_all();
  }
}

void Channel::Restart() {
  put_.store(0);
  taken_.store(0);
  reason_.clear();
}

}  // namespace lockstep
