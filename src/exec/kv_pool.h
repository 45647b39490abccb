// Cached K and V of all sequences: a pool of pages of 64 positions, each with every layer's part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "graph/graph.h"

namespace lockstep {

struct KvTypes {
  const Format* k = nullptr;
  const Format* v = nullptr;
};

// Where K and V of a state lie in a page.
KvLayout KvLayoutOf(const StateSpec& state, const KvTypes& types);

// Pages are handed out and counted by whoever schedules; memory is taken when a page is first written.
class KvPool {
 public:
  // Throws Refused for types that cannot be cached, Failed where memory is short.
  KvPool(const std::vector<StateSpec>& states, const KvTypes& types, int64_t pages);

  static int64_t PageBytes(const std::vector<StateSpec>& states, const KvTypes& types);

  int64_t pages() const { return pages_; }
  int64_t page_bytes() const { return page_bytes_; }
  std::byte* page(int64_t i) { return buffer_.data() + i * page_bytes_; }
  // The index of a state among those of the pool, by its name; it is one of them.
  int32_t slot(std::string_view state) const;
  // Where the K and V of one state lie in a page.
  StateView view(int32_t state_slot) const { return views_[static_cast<size_t>(state_slot)]; }

 private:
  std::vector<std::string> names_;  // of the states
  std::vector<KvLayout> layouts_;
  std::vector<StateView> views_;
  int64_t pages_ = 0;
  int64_t page_bytes_ = 0;
  Buffer buffer_;
};

}  // namespace lockstep
