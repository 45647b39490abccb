// Hands rows from one team to another, in the order they were put in; two may be under way.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_team.h"

namespace lockstep {

class Channel {
 public:
  // Every member of the sending team calls Put, of the receiving team Take, with the same data, which is free again, or there, once
  // all members have returned. Throws Failed with the reason after Break().
  void Put(ThreadTeam& team, int member, std::span<const std::byte> data);
  void Take(ThreadTeam& team, int member, std::span<std::byte> data);

  void Break(std::string_view reason);
  // Empties a broken channel while no thread is inside.
  void Restart();

 private:
  // Both count pieces, times two; bit 0: broken.
  alignas(64) std::atomic<uint32_t> put_{0};
  alignas(64) std::atomic<uint32_t> taken_{0};
  std::array<std::vector<std::byte>, 2> pieces_;
  std::mutex reason_mutex_;
  std::string reason_;

  // Waits until `count` has passed `from`.
  void AwaitPast(const std::atomic<uint32_t>& count, uint32_t from);
};

}  // namespace lockstep
