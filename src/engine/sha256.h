// SHA-256 of bytes, which names a result in one line.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep {

class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256();
  void Add(std::span<const std::byte> bytes);
  // 64 hexadecimal digits; nothing may be added after.
  std::string Hex();

 private:
  void* context_;
};

std::string Sha256Hex(std::span<const std::byte> bytes);

}  // namespace lockstep
