// Files: mapped for reading, written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/interrupt.h"

namespace lockstep {

// A file mapped read-only. Throws Refused with path and reason where the path is missing, a directory, not a regular
// file or not readable. An empty file maps to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Tells the system that a range was read and its pages may go.
  void Release(size_t offset, size_t size) const;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// A file that appears under its name only when Commit() succeeds: written to a temporary name beside it, flushed and
// renamed. Without Commit() the temporary file is removed. A device or pipe is written directly. All members throw Failed (disk full, no permission).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Writes at a place of its own, beyond the end or before it; Write() goes on at the end. Not for
  // pipes.
  void WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t size() const { return size_; }
  void Commit();

 private:
  std::string path_;
  std::string temporary_;
  std::optional<RemoveOnInterrupt> watch_;  // of temporary_
  int fd_ = -1;
  uint64_t size_ = 0;
};

// The whole content of a file. Refused where it cannot be read or is larger than `max_bytes`.
std::string ReadFile(const std::string& path, uint64_t max_bytes);

}  // namespace lockstep
