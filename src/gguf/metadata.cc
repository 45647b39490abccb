#include "gguf/metadata.h"

#include <algorithm>
#include <concepts>
#include <type_traits>

#include "base/error.h"
#include "gguf/value.h"

namespace lockstep {
namespace {

template <typename T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;

// What a getter of T asks for, in words.
template <typename T>
constexpr std::string_view Wanted() {
  if constexpr (std::same_as<T, bool>) return "a bool";
  if constexpr (std::unsigned_integral<T>) return "an unsigned integer";
  if constexpr (std::signed_integral<T>) return "an integer";
  if constexpr (std::floating_point<T>) return "a float";
  return "a string";
}

template <typename T>
constexpr std::string_view Plural() {
  if constexpr (std::same_as<T, bool>) return "bools";
  if constexpr (std::integral<T>) return "integers";
  if constexpr (std::floating_point<T>) return "floats";
  return "strings";
}

// Whether a getter of T takes values of this type, whatever they are.
template <typename T>
bool Takes(GgufValueType type) {
  using Type = GgufValueType;
  if constexpr (std::same_as<T, bool>) return type == Type::kBool;
  if constexpr (std::floating_point<T>) return type == Type::kFloat32 || type == Type::kFloat64;
  if constexpr (!std::integral<T> && !std::floating_point<T>) return type == Type::kString;
  return type != Type::kFloat32 && type != Type::kFloat64 && type != Type::kBool &&
         type != Type::kString && type != Type::kArray;
}

// The bounds of T within a caller's range.
template <Integer T>
GgufRange RangeOf(GgufRange range) {
  if constexpr (std::unsigned_integral<T>) {
    range.min = std::max<int64_t>(range.min, 0);
  } else {
    range.min = std::max<int64_t>(range.min, std::numeric_limits<T>::min());
  }
  range.max = std::min<uint64_t>(range.max, std::numeric_limits<T>::max());
  return range;
}

std::string OutOfRange(GgufRange range, const std::string& found) {
  return fmt::format("expected a value from {} to {}, found {}", range.min, range.max, found);
}

template <Integer T>
std::optional<T> ToInteger(const GgufValue& value, GgufRange range, std::string* why) {
  range = RangeOf<T>(range);
  if (auto* u = std::get_if<uint64_t>(&value.data)) {
    if (*u <= range.max && std::cmp_greater_equal(*u, range.min)) return static_cast<T>(*u);
    *why = OutOfRange(range, fmt::to_string(*u));
  } else {
    const int64_t i = std::get<int64_t>(value.data);
    if (i >= range.min && std::cmp_less_equal(i, range.max)) return static_cast<T>(i);
    *why = OutOfRange(range, fmt::to_string(i));
  }
  return std::nullopt;
}

// `value`, which is of a type that T takes, as a T; or nothing and the reason.
template <typename T>
std::optional<T> Convert(const GgufValue& value, GgufRange range, std::string* why) {
  if constexpr (Integer<T>) {
    return ToInteger<T>(value, range, why);
  } else {
    using Held =
        std::conditional_t<std::same_as<T, bool>, bool,
                           std::conditional_t<std::floating_point<T>, double, std::string_view>>;
    return static_cast<T>(std::get<Held>(value.data));
  }
}

std::string LengthText(GgufLength length) {
  if (length.min == length.max) return fmt::to_string(length.min);
  if (length.max == GgufLength{}.max) return fmt::format("at least {}", length.min);
  return fmt::format("{} to {}", length.min, length.max);
}

void CheckLength(const GgufMetadata& metadata, std::string_view key, uint64_t count,
                 GgufLength length) {
  if (count >= length.min && count <= length.max) return;
  metadata.Refuse(key, fmt::format("expected {} elements, found {}", LengthText(length), count));
}

template <typename T>
std::vector<T> CopyArray(const GgufMetadata& metadata, std::string_view key, const GgufArray& array,
                         GgufRange range) {
  if (!Takes<T>(array.element)) {
    metadata.Refuse(key, fmt::format("expected an array of {}, found an array of {}", Plural<T>(),
                                     GgufValueTypeName(array.element)));
  }
  std::vector<T> out;
  out.reserve(array.count);
  std::string why;
  for (GgufValue element : array) {
    std::optional<T> converted = Convert<T>(element, range, &why);
    if (!converted) metadata.Refuse(key, fmt::format("element {}: {}", out.size(), why));
    out.push_back(*std::move(converted));
  }
  return out;
}

}  // namespace

std::string_view GgufMetadata::KeyOf(const Entry& entry) const {
  return {reinterpret_cast<const char*>(bytes_.data()) + entry.key_at, entry.key_size};
}

GgufValue GgufMetadata::ValueOf(const Entry& entry) const {
  ByteCursor cursor(bytes_, entry.key_at + entry.key_size + sizeof(uint32_t), name_);
  return ReadGgufValue(cursor, entry.type, 0);
}

GgufEntry GgufMetadata::at(size_t i) const { return {KeyOf(entries_[i]), ValueOf(entries_[i])}; }

std::optional<GgufValue> GgufMetadata::Find(std::string_view key) const {
  auto key_of = [this](uint32_t i) { return KeyOf(entries_[i]); };
  auto found = std::ranges::lower_bound(by_key_, key, {}, key_of);
  if (found == by_key_.end() || key_of(*found) != key) return std::nullopt;
  return ValueOf(entries_[*found]);
}

void GgufMetadata::Refuse(std::string_view key, std::string_view text) const {
  throw Refused("{}: {}: {}", name_, Printable(key), text);
}

template <typename T>
std::optional<T> GgufMetadata::Optional(std::string_view key, GgufRange range) const {
  std::optional<GgufValue> value = Find(key);
  if (!value) return std::nullopt;
  if (!Takes<T>(value->type)) {
    Refuse(key, fmt::format("expected {}, found {}", Wanted<T>(), value->Describe()));
  }
  std::string why;
  std::optional<T> converted = Convert<T>(*value, range, &why);
  if (!converted) Refuse(key, why);
  return converted;
}

template <typename T>
T GgufMetadata::Required(std::string_view key, GgufRange range) const {
  std::optional<T> value = Optional<T>(key, range);
  if (!value) Refuse(key, fmt::format("expected {}, but the key is missing", Wanted<T>()));
  return *std::move(value);
}

template <typename T>
std::optional<std::vector<T>> GgufMetadata::OptionalArray(std::string_view key, GgufLength length,
                                                          GgufRange range) const {
  std::optional<GgufValue> value = Find(key);
  if (!value) return std::nullopt;
  auto* array = std::get_if<GgufArray>(&value->data);
  if (array == nullptr) {
    Refuse(key, fmt::format("expected an array, found {}", value->Describe()));
  }
  CheckLength(*this, key, array->count, length);
  return CopyArray<T>(*this, key, *array, range);
}

template <typename T>
std::vector<T> GgufMetadata::RequiredArray(std::string_view key, GgufLength length,
                                           GgufRange range) const {
  std::optional<std::vector<T>> array = OptionalArray<T>(key, length, range);
  if (!array) Refuse(key, "expected an array, but the key is missing");
  return *std::move(array);
}

template <typename T>
std::optional<std::vector<T>> GgufMetadata::OptionalPerItem(std::string_view key, uint64_t count,
                                                            GgufRange range) const {
  std::optional<GgufValue> value = Find(key);
  if (!value) return std::nullopt;
  if (value->type == GgufValueType::kArray) {
    return OptionalArray<T>(key, GgufLength::Exactly(count), range);
  }
  return std::vector<T>(count, Required<T>(key, range));
}

std::optional<std::span<const std::byte>> GgufMetadata::OptionalBytes(std::string_view key,
                                                                      GgufLength length) const {
  std::optional<GgufValue> value = Find(key);
  if (!value) return std::nullopt;
  auto* array = std::get_if<GgufArray>(&value->data);
  if (array == nullptr ||
      (array->element != GgufValueType::kUint8 && array->element != GgufValueType::kInt8)) {
    Refuse(key, fmt::format("expected an array of uint8 or int8, found {}", value->Describe()));
  }
  CheckLength(*this, key, array->count, length);
  return array->bytes;
}

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses here.
#define LOCKSTEP_GETTERS(T)                                                                       \
  template std::optional<T> GgufMetadata::Optional<T>(std::string_view, GgufRange) const;         \
  template T GgufMetadata::Required<T>(std::string_view, GgufRange) const;                        \
  template std::vector<T> GgufMetadata::RequiredArray<T>(std::string_view, GgufLength, GgufRange) \
      const;                                                                                      \
  template std::optional<std::vector<T>> GgufMetadata::OptionalArray<T>(                          \
      std::string_view, GgufLength, GgufRange) const;                                             \
  template std::optional<std::vector<T>> GgufMetadata::OptionalPerItem<T>(                        \
      std::string_view, uint64_t, GgufRange) const;
LOCKSTEP_GETTERS(bool)
LOCKSTEP_GETTERS(uint8_t)
LOCKSTEP_GETTERS(uint16_t)
LOCKSTEP_GETTERS(uint32_t)
LOCKSTEP_GETTERS(uint64_t)
LOCKSTEP_GETTERS(int8_t)
LOCKSTEP_GETTERS(int16_t)
LOCKSTEP_GETTERS(int32_t)
LOCKSTEP_GETTERS(int64_t)
LOCKSTEP_GETTERS(float)
LOCKSTEP_GETTERS(double)
LOCKSTEP_GETTERS(std::string)
LOCKSTEP_GETTERS(std::string_view)
#undef LOCKSTEP_GETTERS
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace lockstep
