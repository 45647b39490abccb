// Large memory: zeroed, aligned, on huge pages where the system allows, and placed by first touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/checked.h"

namespace lockstep {

// Every allocation starts on a cache line, which is also the widest vector register.
inline constexpr size_t kMemoryAlignment = 64;

// An anonymous mapping of zero bytes. Pages are given when first written, on the NUMA node of the
// thread that does so: let the team that will read the memory write it first. Sizes from 2 MiB are
// aligned to 2 MiB and ask for huge pages.
class Buffer {
 public:
  Buffer() = default;
  // `who` names the owner in the error. Throws Failed with the size where memory is refused or the
  // size has overflowed.
  explicit Buffer(Size bytes, std::string_view who = "memory");
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<std::byte> bytes() { return {data_, size_}; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // what munmap takes, data_ lies inside
  size_t mapping_size_ = 0;
};

// Hands out aligned pieces of one Buffer, in order; all go at once.
class Arena {
 public:
  Arena() = default;
  explicit Arena(Size bytes, std::string_view who = "memory") : buffer_(bytes, who) {}

  // What a piece of `bytes` takes from the arena.
  static constexpr Size Rounded(Size bytes) { return bytes.AlignUp(kMemoryAlignment); }

  // The next piece. The owner computes the arena's size as the sum of Rounded() pieces beforehand;
  // taking more is a bug.
  std::span<std::byte> Take(size_t bytes);
  template <typename T>
  std::span<T> Take(size_t count) {
    static_assert(alignof(T) <= kMemoryAlignment);
    std::span<std::byte> piece = Take(count * sizeof(T));
    return {reinterpret_cast<T*>(piece.data()), count};
  }
  // Starts again from the front. Bytes keep what was written.
  void Rewind() { used_ = 0; }

  size_t used() const { return used_; }
  size_t size() const { return buffer_.size(); }

 private:
  Buffer buffer_;
  size_t used_ = 0;
};

}  // namespace lockstep
