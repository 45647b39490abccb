#include "gguf/value.h"

#include "base/checked.h"

namespace lockstep {
namespace {

struct TypeRow {
  std::string_view name;
  std::string_view article;
  uint64_t fixed_size;
};

constexpr TypeRow kRows[] = {
    {"uint8", "a", 1},   {"int8", "an", 1},  {"uint16", "a", 2},  {"int16", "an", 2},
    {"uint32", "a", 4},  {"int32", "an", 4}, {"float32", "a", 4}, {"bool", "a", 1},
    {"string", "a", 0},  {"array", "an", 0}, {"uint64", "a", 8},  {"int64", "an", 8},
    {"float64", "a", 8},
};

// The smallest array: element type and count.
constexpr uint64_t kArrayHead = 12;
constexpr uint64_t kStringHead = 8;

bool ReadBool(ByteCursor& cursor) {
  auto value = cursor.Number<uint8_t>("bool");
  if (value > 1) cursor.Refuse("expected a bool of 0 or 1, found {}", value);
  return value != 0;
}

GgufArray ReadArray(ByteCursor& cursor, int depth) {
  if (depth >= kGgufMaxArrayDepth) {
    cursor.Refuse("expected arrays at most {} deep, found more", kGgufMaxArrayDepth);
  }
  GgufArray array;
  array.element = ReadGgufValueType(cursor);
  const uint64_t fixed = GgufFixedSize(array.element);
  const bool strings = array.element == GgufValueType::kString;
  array.count = cursor.Count(fixed != 0 ? fixed : strings ? kStringHead : kArrayHead, "elements");
  // Walks with a cursor of its own where the elements' sizes or values need a look.
  ByteCursor walk = cursor;
  if (fixed != 0 && array.element != GgufValueType::kBool) {
    walk.Bytes(array.count * fixed, "elements");
  } else {
    for (uint64_t i = 0; i < array.count; ++i) ReadGgufValue(walk, array.element, depth + 1);
  }
  array.bytes = cursor.Bytes(walk.at() - cursor.at(), "elements");
  return array;
}

}  // namespace

std::string_view GgufValueTypeName(GgufValueType type) {
  return kRows[static_cast<uint32_t>(type)].name;
}

uint64_t GgufFixedSize(GgufValueType type) { return kRows[static_cast<uint32_t>(type)].fixed_size; }

GgufValueType ReadGgufValueType(ByteCursor& cursor) {
  auto id = cursor.Number<uint32_t>("value type");
  if (id >= std::size(kRows)) {
    cursor.Refuse("expected a value type from 0 to {}, found {}", std::size(kRows) - 1, id);
  }
  return static_cast<GgufValueType>(id);
}

GgufValue ReadGgufValue(ByteCursor& cursor, GgufValueType type, int depth) {
  using Type = GgufValueType;
  const std::string_view what = GgufValueTypeName(type);
  switch (type) {
    case Type::kUint8:
      return {type, uint64_t{cursor.Number<uint8_t>(what)}};
    case Type::kUint16:
      return {type, uint64_t{cursor.Number<uint16_t>(what)}};
    case Type::kUint32:
      return {type, uint64_t{cursor.Number<uint32_t>(what)}};
    case Type::kUint64:
      return {type, cursor.Number<uint64_t>(what)};
    case Type::kInt8:
      return {type, int64_t{cursor.Number<int8_t>(what)}};
    case Type::kInt16:
      return {type, int64_t{cursor.Number<int16_t>(what)}};
    case Type::kInt32:
      return {type, int64_t{cursor.Number<int32_t>(what)}};
    case Type::kInt64:
      return {type, cursor.Number<int64_t>(what)};
    case Type::kFloat32:
      return {type, double{cursor.Number<float>(what)}};
    case Type::kFloat64:
      return {type, cursor.Number<double>(what)};
    case Type::kBool:
      return {type, ReadBool(cursor)};
    case Type::kString:
      return {type, cursor.String(what)};
    case Type::kArray:
      return {type, ReadArray(cursor, depth)};
  }
  cursor.Refuse("expected a known value type, found {}", static_cast<uint32_t>(type));
}

std::string GgufValue::Describe() const {
  const TypeRow& row = kRows[static_cast<uint32_t>(type)];
  std::string text = fmt::format("{} {}", row.article, row.name);
  if (auto* array = std::get_if<GgufArray>(&data)) {
    text += fmt::format(" of {}", GgufValueTypeName(array->element));
  }
  return text;
}

// The bytes of an array were checked when the file was opened: reading them again cannot fail.
GgufValue GgufValueIterator::operator*() const {
  ByteCursor cursor(rest_, 0, "array");
  return ReadGgufValue(cursor, element_, 1);
}

GgufValueIterator& GgufValueIterator::operator++() {
  ByteCursor cursor(rest_, 0, "array");
  ReadGgufValue(cursor, element_, 1);
  rest_ = rest_.subspan(cursor.at());
  return *this;
}

GgufValueIterator GgufArray::begin() const { return {element, bytes}; }
GgufValueIterator GgufArray::end() const { return {element, bytes.last(0)}; }

}  // namespace lockstep
