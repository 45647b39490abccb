// Typed metadata of a GGUF file: views into the file's bytes, decoded where they are asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

// Value types and their ids in the file (GGUF specification, gguf_metadata_value_type).
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "uint8", "string", ...; `type` must be one of the above.
std::string_view GgufValueTypeName(GgufValueType type);

class GgufValueIterator;

// An array in the file; elements are decoded while walking. Holds no memory: valid as long as the
// file's bytes.
//   for (GgufValue element : array) ...
struct GgufArray {
  GgufValueType element = GgufValueType::kUint8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;  // the elements as the file has them (checked, little-endian)

  GgufValueIterator begin() const;
  GgufValueIterator end() const;
};

// One value: its exact type, and its content in the widest type of its kind.
struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> data;

  // "a string", "an array of int32": for messages.
  std::string Describe() const;
};

// Forward iterator over an array's elements.
class GgufValueIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = GgufValue;
  using difference_type = std::ptrdiff_t;
  using pointer = const GgufValue*;
  using reference = GgufValue;

  GgufValueIterator() = default;
  GgufValueIterator(GgufValueType element, std::span<const std::byte> rest)
      : element_(element), rest_(rest) {}

  GgufValue operator*() const;
  GgufValueIterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(const GgufValueIterator& other) const {
    return rest_.size() == other.rest_.size();
  }

 private:
  GgufValueType element_ = GgufValueType::kUint8;
  std::span<const std::byte> rest_;
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

// What a caller accepts of an integer, or of each element of an integer array.
struct GgufRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  uint64_t max = std::numeric_limits<uint64_t>::max();
};

// What a caller accepts of an array's length.
struct GgufLength {
  uint64_t min = 0;
  uint64_t max = std::numeric_limits<uint64_t>::max();
  static GgufLength Exactly(uint64_t n) { return {n, n}; }
  static GgufLength AtLeast(uint64_t n) { return {n, std::numeric_limits<uint64_t>::max()}; }
};

// The key-value pairs of a file, in file order. Keeps 20 bytes a pair and views into the file's
// bytes.
//
// The typed getters throw Refused "model.gguf: llama.block_count: expected an unsigned integer,
// found a string" where the type, value or length is not what was asked for; the required ones also
// where the key is missing. Kinds:
//   bool                         from bool only
//   int8_t .. uint64_t           from any integer type whose value fits T and the range
//   float, double                from float32 or float64 (a float64 is rounded to float)
//   std::string_view, std::string  from string; a string_view lives as long as the file's bytes
class GgufMetadata {
 public:
  size_t size() const { return entries_.size(); }
  GgufEntry at(size_t i) const;  // i < size(), in file order

  // Finding an array walks it to its end: keep the value rather than ask twice.
  bool Has(std::string_view key) const { return Find(key).has_value(); }
  std::optional<GgufValue> Find(std::string_view key) const;

  template <typename T>
  T Required(std::string_view key, GgufRange range = {}) const;
  // Nothing where the key is missing; a key of a wrong type is refused all the same.
  template <typename T>
  std::optional<T> Optional(std::string_view key, GgufRange range = {}) const;
  template <typename T>
  T OptionalOr(std::string_view key, T otherwise, GgufRange range = {}) const {
    return Optional<T>(key, range).value_or(std::move(otherwise));
  }

  // Whole arrays, copied. Elements follow the rules of the scalars (so int8 scores are not floats,
  // and token types may be of any integer type); one that does not fit is named by its index.
  template <typename T>
  std::vector<T> RequiredArray(std::string_view key, GgufLength length = {},
                               GgufRange range = {}) const;
  template <typename T>
  std::optional<std::vector<T>> OptionalArray(std::string_view key, GgufLength length = {},
                                              GgufRange range = {}) const;

  // An array of uint8 or int8 in place, without a copy.
  std::optional<std::span<const std::byte>> OptionalBytes(std::string_view key,
                                                          GgufLength length = {}) const;

  // A value that is the same number for all or one number for each (head counts, window patterns):
  // the scalar repeated, or the array, which must have exactly `count` elements. `count` is the
  // caller's to bound.
  template <typename T>
  std::optional<std::vector<T>> OptionalPerItem(std::string_view key, uint64_t count,
                                                GgufRange range = {}) const;

  // Throws Refused "FILE: KEY: text" for rules that only the caller can check.
  [[noreturn]] void Refuse(std::string_view key, std::string_view text) const;

 private:
  friend class GgufFile;
  friend class GgufParser;

  struct Entry {
    uint64_t key_at;  // offset of the key's text; the value follows the key and its type
    uint32_t key_size;
    GgufValueType type;
  };
  std::string_view KeyOf(const Entry& entry) const;
  GgufValue ValueOf(const Entry& entry) const;

  std::string name_;                  // of the file, printable
  std::span<const std::byte> bytes_;  // of the file
  std::vector<Entry> entries_;        // in file order
  std::vector<uint32_t> by_key_;      // indices of entries_, ascending by key
};

}  // namespace lockstep
