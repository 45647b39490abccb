// Metadata of a file in the making, in order, where a later value takes an earlier one's place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gguf/gguf_writer.h"

namespace lockstep {

// The keys of one file. Integers are stored as uint32, numbers as float32, as llama.cpp does.
class Keys {
 public:
  using Value = std::variant<uint32_t, float, bool, std::string, GgufArrayData>;

  explicit Keys(std::string_view architecture);

  // A key of the architecture, without its prefix: "block_count".
  void Set(std::string_view key, int64_t value);  // 0 .. 2^32 - 1
  void Set(std::string_view key, int value) { Set(key, static_cast<int64_t>(value)); }
  void Set(std::string_view key, double value);
  void Set(std::string_view key, bool value);
  void Set(std::string_view key, const char* value) { Set(key, std::string(value)); }
  void Set(std::string_view key, std::string value);
  void Set(std::string_view key, const std::vector<int64_t>& values);
  void Set(std::string_view key, const std::vector<double>& values);
  void Set(std::string_view key, const std::vector<bool>& values);
  // Takes back a key that was set for all architectures.
  void Remove(std::string_view key);

  // A key with its full name: "general.name".
  void SetFull(std::string key, Value value);

  const std::vector<std::pair<std::string, Value>>& all() const { return all_; }
  void WriteTo(GgufWriter& writer) const;

 private:
  std::string prefix_;
  std::vector<std::pair<std::string, Value>> all_;
};

}  // namespace lockstep
