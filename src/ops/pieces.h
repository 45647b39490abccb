// Memory of a step cut into arrays: one layout, for counting and for use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Cuts memory into arrays that start on cache lines; from null, only counts what they take.
class Pieces {
 public:
  explicit Pieces(std::byte* base) : base_(base) {}
  template <typename T>
  T* Take(int64_t count) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(piece);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace lockstep
