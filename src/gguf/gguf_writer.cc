#include "gguf/gguf_writer.h"

#include <algorithm>
#include <type_traits>

#include "base/checked.h"
#include "base/error.h"
#include "gguf/parser.h"
#include "gguf/value.h"

namespace lockstep {
namespace {

constexpr uint32_t kVersion = 3;

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendString(std::string* out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  out->append(text);
}

std::string_view Chars(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
constexpr GgufValueType TypeOf() {
  using Type = GgufValueType;
  if constexpr (std::is_same_v<T, bool>) return Type::kBool;
  if constexpr (std::is_same_v<T, float>) return Type::kFloat32;
  if constexpr (std::is_same_v<T, double>) return Type::kFloat64;
  if constexpr (std::is_same_v<T, uint8_t>) return Type::kUint8;
  if constexpr (std::is_same_v<T, int8_t>) return Type::kInt8;
  if constexpr (std::is_same_v<T, uint16_t>) return Type::kUint16;
  if constexpr (std::is_same_v<T, int16_t>) return Type::kInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return Type::kUint32;
  if constexpr (std::is_same_v<T, int32_t>) return Type::kInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return Type::kUint64;
  return Type::kInt64;
}

// The number's low bytes are its value in every narrower type of its kind (two's complement,
// little-endian).
void AppendNumber(std::string* out, GgufValueType type, uint64_t bits) {
  out->append(reinterpret_cast<const char*>(&bits), GgufFixedSize(type));
}

void AppendValue(std::string* out, const GgufValue& value) {
  struct Visitor {
    std::string* out;
    GgufValueType type;
    void operator()(uint64_t v) const { AppendNumber(out, type, v); }
    void operator()(int64_t v) const { AppendNumber(out, type, static_cast<uint64_t>(v)); }
    void operator()(bool v) const { Append<uint8_t>(out, v ? 1 : 0); }
    void operator()(std::string_view v) const { AppendString(out, v); }
    void operator()(double v) const {
      type == GgufValueType::kFloat32 ? Append(out, static_cast<float>(v)) : Append(out, v);
    }
    void operator()(const GgufArray& v) const {
      Append(out, static_cast<uint32_t>(v.element));
      Append(out, v.count);
      out->append(Chars(v.bytes));
    }
  };
  std::visit(Visitor{out, value.type}, value.data);
}

}  // namespace

template <typename T>
GgufArrayData GgufArrayData::Of(std::span<const T> elements) {
  return {TypeOf<T>(), elements.size(), std::string(Chars(std::as_bytes(elements)))};
}

GgufArrayData GgufArrayData::OfStrings(std::span<const std::string_view> elements) {
  GgufArrayData array{GgufValueType::kString, elements.size(), {}};
  for (std::string_view text : elements) AppendString(&array.bytes, text);
  return array;
}

GgufArrayData GgufArrayData::OfStrings(std::span<const std::string> elements) {
  GgufArrayData array{GgufValueType::kString, elements.size(), {}};
  for (const std::string& text : elements) AppendString(&array.bytes, text);
  return array;
}

GgufArrayData GgufArrayData::OfArrays(std::span<const GgufArrayData> elements) {
  GgufArrayData array{GgufValueType::kArray, elements.size(), {}};
  for (const GgufArrayData& inner : elements) {
    Append(&array.bytes, static_cast<uint32_t>(inner.element));
    Append(&array.bytes, inner.count);
    array.bytes += inner.bytes;
  }
  return array;
}

GgufWriter::GgufWriter(const std::string& path, uint32_t alignment)
    : file_(path), name_(Printable(path, 4096)), alignment_(alignment) {
  LOCKSTEP_CHECK(alignment >= 8 && std::has_single_bit(alignment), "alignment {}", alignment);
  if (alignment == kGgufDefaultAlignment) return;
  keys_.emplace(kGgufAlignmentKey);
  AppendString(&metadata_, kGgufAlignmentKey);
  Append(&metadata_, static_cast<uint32_t>(GgufValueType::kUint32));
  Append(&metadata_, alignment);
}

void GgufWriter::Add(std::string_view key, const GgufValue& value) {
  LOCKSTEP_CHECK(!head_written_, "{} after the data", key);
  if (key == kGgufAlignmentKey) {
    throw Refused("{}: {}: expected to be left to the writer", name_, key);
  }
  if (!keys_.emplace(key).second) {
    throw Refused("{}: {}: expected one value, found two", name_, Printable(key));
  }
  std::string pair;
  AppendString(&pair, key);
  Append(&pair, static_cast<uint32_t>(value.type));
  AppendValue(&pair, value);
  // The reader judges what may be written.
  ByteCursor cursor(std::as_bytes(std::span(pair)), 0, name_);
  ReadGgufPair(cursor);
  metadata_ += pair;
}

template <typename T>
void GgufWriter::Add(std::string_view key, T value) {
  GgufValue wide{TypeOf<T>(), {}};
  if constexpr (std::is_same_v<T, bool>) {
    wide.data = value;
  } else if constexpr (std::is_floating_point_v<T>) {
    wide.data = double{value};
  } else if constexpr (std::is_signed_v<T>) {
    wide.data = int64_t{value};
  } else {
    wide.data = uint64_t{value};
  }
  Add(key, wide);
}

void GgufWriter::Add(std::string_view key, std::string_view value) {
  Add(key, GgufValue{GgufValueType::kString, value});
}

void GgufWriter::Add(std::string_view key, const GgufArrayData& value) {
  GgufArray view{value.element, value.count, std::as_bytes(std::span(value.bytes))};
  Add(key, GgufValue{GgufValueType::kArray, view});
}

uint64_t GgufWriter::AddTensor(std::string_view name, uint32_t type_id,
                               std::span<const uint64_t> dims) {
  LOCKSTEP_CHECK(!head_written_, "{} after the data", name);
  if (!names_.emplace(name).second) {
    throw Refused("{}: {}: expected one tensor of this name, found another", name_,
                  Printable(name));
  }
  std::string entry;
  AppendString(&entry, name);
  Append(&entry, static_cast<uint32_t>(dims.size()));
  for (uint64_t dim : dims) Append(&entry, dim);
  Append(&entry, type_id);
  Append(&entry, next_offset_);
  ByteCursor cursor(std::as_bytes(std::span(entry)), 0, name_);
  const uint64_t bytes = ReadGgufTensorInfo(cursor).bytes;
  Size next = (Size(next_offset_) + bytes).AlignUp(alignment_);
  if (!next.valid()) throw Refused("{}: {}: size overflow", name_, Printable(name));
  next_offset_ = next.value_or(0);
  tensors_.push_back({std::string(name), bytes});
  directory_ += entry;
  return bytes;
}

void GgufWriter::PadTo(uint64_t unit) {
  const std::string zeros(Size(file_.size()).AlignUp(unit).value_or(0) - file_.size(), '\0');
  file_.Write(zeros);
}

void GgufWriter::WriteHead() {
  if (head_written_) return;
  head_written_ = true;
  std::string head = "GGUF";
  Append(&head, kVersion);
  Append<uint64_t>(&head, tensors_.size());
  Append<uint64_t>(&head, keys_.size());
  file_.Write(head);
  file_.Write(metadata_);
  file_.Write(directory_);
  PadTo(alignment_);
}

void GgufWriter::Write(std::span<const std::byte> data) {
  WriteHead();
  while (!data.empty()) {
    if (current_ == tensors_.size()) {
      throw Failed("{}: expected no more data, found {} bytes", name_, data.size());
    }
    const uint64_t missing = tensors_[current_].bytes - current_bytes_;
    auto part = data.first(std::min<uint64_t>(data.size(), missing));
    file_.Write(part);
    data = data.subspan(part.size());
    current_bytes_ += part.size();
    if (part.size() == missing) {
      PadTo(alignment_);
      ++current_;
      current_bytes_ = 0;
    }
  }
}

void GgufWriter::Finish() {
  WriteHead();
  if (current_ != tensors_.size()) {
    throw Failed("{}: {}: expected {} bytes of data, found {}", name_,
                 Printable(tensors_[current_].name), tensors_[current_].bytes, current_bytes_);
  }
  file_.Commit();
}

void GgufWriter::FinishHollow() {
  WriteHead();
  uint64_t end = file_.size();
  for (const Declared& tensor : tensors_)
    end = (Size(end) + tensor.bytes).AlignUp(alignment_).value_or(0);
  constexpr std::byte kZero{};
  if (end > file_.size()) file_.WriteAt(end - 1, {&kZero, 1});
  file_.Commit();
}

#define LOCKSTEP_WRITABLE(T)                                       \
  template GgufArrayData GgufArrayData::Of<T>(std::span<const T>); \
  template void GgufWriter::Add<T>(std::string_view, T);
LOCKSTEP_WRITABLE(bool)
LOCKSTEP_WRITABLE(uint8_t)
LOCKSTEP_WRITABLE(uint16_t)
LOCKSTEP_WRITABLE(uint32_t)
LOCKSTEP_WRITABLE(uint64_t)
LOCKSTEP_WRITABLE(int8_t)
LOCKSTEP_WRITABLE(int16_t)
LOCKSTEP_WRITABLE(int32_t)
LOCKSTEP_WRITABLE(int64_t)
LOCKSTEP_WRITABLE(float)
LOCKSTEP_WRITABLE(double)
#undef LOCKSTEP_WRITABLE

}  // namespace lockstep
