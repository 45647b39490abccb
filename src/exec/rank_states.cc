// Cached states of all ranks as images of the whole model (exec/state_image.h).
#include <cstring>

#include "base/error.h"
#include "exec/ranks.h"

namespace lockstep {
namespace {

bool OfPage(RankSet::StateMove move) {
  return move == RankSet::StateMove::kReadPage || move == RankSet::StateMove::kWritePage;
}

bool Writes(RankSet::StateMove move) {
  return move == RankSet::StateMove::kWritePage || move == RankSet::StateMove::kWriteSnapshot;
}

}  // namespace

const std::vector<StateRun>& RankSet::RunsOf(StateMove move, int rank) const {
  const StateRuns& runs = state_runs_[static_cast<size_t>(rank)];
  return OfPage(move) ? runs.page : runs.recurrent;
}

void RankSet::MoveHere(StateMove move, int64_t index, std::span<std::byte> image) {
  for (int i = 0; i < local_ranks(); ++i) {
    KvPool& pool = *At(i).pool;
    RecurrentPool& recurrent = *At(i).recurrent;
    for (const StateRun& run : RunsOf(move, first_rank_ + i)) {
      std::byte* local = nullptr;
      // In the pools the states of graphs beside this one come behind its own.
      if (OfPage(move)) {
        const StateView view = pool.view(run.slot);
        local = pool.page(index) + (run.value ? view.v_offset : view.k_offset);
      } else {
        local = recurrent.snapshot(index) +
                recurrent.view(run.slot).state * static_cast<int64_t>(sizeof(float));
      }
      std::byte* whole = image.data() + run.image;
      local += run.local;
      Writes(move) ? std::memcpy(local, whole, static_cast<size_t>(run.bytes))
                   : std::memcpy(whole, local, static_cast<size_t>(run.bytes));
    }
  }
}

// Bytes of the ranks of one process, one run after the other.
std::vector<std::byte> RankSet::Packed(StateMove move, int process,
                                       std::span<const std::byte> image) const {
  std::vector<std::byte> packed;
  for (int rank = 0; rank < std::ssize(sharded_.ranks); ++rank) {
    if (group_->process_of(rank) != process) continue;
    for (const StateRun& run : RunsOf(move, rank)) {
      const auto bytes =
          image.subspan(static_cast<size_t>(run.image), static_cast<size_t>(run.bytes));
      packed.insert(packed.end(), bytes.begin(), bytes.end());
    }
  }
  return packed;
}

void RankSet::Unpack(StateMove move, int process, std::span<const std::byte> packed,
                     std::span<std::byte> image) const {
  for (int rank = 0; rank < std::ssize(sharded_.ranks); ++rank) {
    if (group_->process_of(rank) != process) continue;
    for (const StateRun& run : RunsOf(move, rank)) {
      std::memcpy(image.data() + run.image, packed.data(), static_cast<size_t>(run.bytes));
      packed = packed.subspan(static_cast<size_t>(run.bytes));
    }
  }
}

void RankSet::MoveStates(StateMove move, int64_t index, std::span<std::byte> image) {
  if (group_->processes() > 1) {
    std::string message(1, static_cast<char>(move));
    message.append(reinterpret_cast<const char*>(&index), sizeof(index));
    if (Writes(move)) message.append(reinterpret_cast<const char*>(image.data()), image.size());
    group_->Broadcast(message);
  }
  MoveHere(move, index, image);
  for (int process = 1; process < group_->processes() && !Writes(move); ++process) {
    // Only the sizes are of use here.
    std::vector<std::byte> packed = Packed(move, process, image);
    group_->SendToLeader(process, packed);
    Unpack(move, process, packed, image);
  }
}

void RankSet::FollowStates(const std::string& message) {
  const auto move = static_cast<StateMove>(message[0]);
  int64_t index = 0;
  if (message.size() < 1 + sizeof(index))
    throw Failed("states: expected an index, found {} bytes", message.size());
  std::memcpy(&index, message.data() + 1, sizeof(index));
  const int64_t count = OfPage(move) ? pages_ : snapshots();
  if (index < 0 || index >= count)
    throw Failed("states: expected an index below {}, found {}", count, index);
  const int64_t bytes = OfPage(move) ? images_->page_bytes() : images_->recurrent_bytes();
  std::vector<std::byte> image(static_cast<size_t>(bytes));
  if (Writes(move)) {
    if (message.size() != 1 + sizeof(index) + image.size())
      throw Failed("states: expected {} bytes, found {}", image.size(), message.size());
    std::memcpy(image.data(), message.data() + 1 + sizeof(index), image.size());
  }
  MoveHere(move, index, image);
  for (int process = 1; process < group_->processes() && !Writes(move); ++process) {
    std::vector<std::byte> packed;
    if (process == group_->process()) packed = Packed(move, process, image);
    group_->SendToLeader(process, packed);
  }
}

}  // namespace lockstep
