// Reading the bytes of a file that nobody vouches for: every read is checked against what is left.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "GGUF and safetensors are read in place");

// A position in a file's bytes, and what is being read there, for messages. Members throw Refused
// "FILE: ITEM: expected N bytes of WHAT at byte AT, found M".
class ByteCursor {
 public:
  // `file` is printable and outlives the cursor.
  ByteCursor(std::span<const std::byte> bytes, uint64_t at, std::string_view file)
      : bytes_(bytes), at_(at), file_(file) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  // From here on errors name "LABEL", "LABEL 12" or, once it is known, the item's own name.
  void SetItem(std::string_view label) { label_ = label, numbered_ = false, name_ = {}; }
  void SetItem(std::string_view label, uint64_t number) {
    label_ = label, number_ = number, numbered_ = true, name_ = {};
  }
  void SetItemName(std::string_view name) { name_ = name; }

  std::span<const std::byte> Bytes(uint64_t size, std::string_view what) {
    if (size > left()) {
      Refuse("expected {} bytes of {} at byte {}, found {}", size, what, at_, left());
    }
    auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }

  template <typename T>
  T Number(std::string_view what) {
    T value;
    std::memcpy(&value, Bytes(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // A length of 8 bytes, then that many characters.
  std::string_view String(std::string_view what) {
    auto text = Bytes(Number<uint64_t>(what), what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  // A count of 8 bytes of things that take at least `min_bytes` each: never more than the rest of
  // the file can hold.
  uint64_t Count(uint64_t min_bytes, std::string_view what) {
    auto count = Number<uint64_t>(what);
    if (count > left() / min_bytes) {
      Refuse("expected at most {} {} in the {} bytes left, found {}", left() / min_bytes, what,
             left(), count);
    }
    return count;
  }

  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Refused("{}: {}: {}", file_, Item(), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string Item() const {
    if (!name_.empty()) return Printable(name_);
    return numbered_ ? fmt::format("{} {}", label_, number_) : std::string(label_);
  }

  std::span<const std::byte> bytes_;
  uint64_t at_;
  std::string_view file_;
  std::string_view label_ = "header";
  std::string_view name_;
  uint64_t number_ = 0;
  bool numbered_ = false;
};

}  // namespace lockstep
