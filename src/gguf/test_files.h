// Files made byte by byte for tests, and what is asked of every file: it loads and can be read to
// its last byte, or it is refused in one line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/gguf_file.h"
#include "gguf/safetensors.h"

namespace lockstep::test {

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A number as a file has it.
template <typename T>
std::string Num(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string Str(std::string_view text) {
  return Num<uint64_t>(text.size()) + std::string(text);
}

inline std::string Pair(std::string_view key, uint32_t type, std::string_view value) {
  return Str(key) + Num(type) + std::string(value);
}

inline std::string Pair(std::string_view key, GgufValueType type, std::string_view value) {
  return Pair(key, static_cast<uint32_t>(type), value);
}

inline std::string Array(GgufValueType element, uint64_t count, std::string_view elements) {
  return Num(static_cast<uint32_t>(element)) + Num(count) + std::string(elements);
}

inline std::string Info(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                        uint64_t offset) {
  std::string out = Str(name) + Num(static_cast<uint32_t>(dims.size()));
  for (uint64_t dim : dims) out += Num(dim);
  return out + Num(type) + Num(offset);
}

// A GGUF file whose every part can be wrong.
struct RawGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::string> pairs;
  std::vector<std::string> infos;
  std::string data;
  uint64_t alignment = 32;
  uint64_t extra_tensors = 0;  // added to the true counts
  uint64_t extra_pairs = 0;

  std::string Bytes() const {
    std::string out = magic + Num(version) + Num<uint64_t>(infos.size() + extra_tensors) +
                      Num<uint64_t>(pairs.size() + extra_pairs);
    for (const std::string& pair : pairs) out += pair;
    for (const std::string& info : infos) out += info;
    if (!infos.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

// Reads every value and every byte of data, so that a sanitizer sees what a view should not cover.
inline uint64_t ReadValue(const GgufValue& value) {
  if (auto* text = std::get_if<std::string_view>(&value.data)) {
    uint64_t sum = 0;
    for (char c : *text) sum += static_cast<unsigned char>(c);
    return sum;
  }
  auto* array = std::get_if<GgufArray>(&value.data);
  if (array == nullptr) return value.data.index();
  uint64_t count = 0;
  for (GgufValue element : *array) {
    ReadValue(element);
    ++count;
  }
  if (count != array->count) throw Failed("array of {}: walked {}", array->count, count);
  return count;
}

inline uint64_t ReadBytes(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (std::byte b : bytes) sum += static_cast<uint64_t>(b);
  return sum;
}

// Ends with what nothing else can be told from: 0 only for a file of zeros.
inline uint64_t ReadAll(const GgufFile& file) {
  uint64_t sum = 0;
  for (size_t i = 0; i < file.metadata().size(); ++i) sum += ReadValue(file.metadata().at(i).value);
  for (GgufTensor tensor : file.tensors()) sum += ReadBytes(tensor.data);
  return sum;
}

inline uint64_t ReadAll(const Safetensors& set) {
  uint64_t sum = 0;
  for (const SafetensorsTensor& tensor : set.tensors()) sum += ReadBytes(tensor.data);
  return sum;
}

// Why the file is refused, or "" where it loads and can be read whole. Anything but a one-line
// refusal passes through.
template <typename File>
std::string RefusalOf(std::string_view content, const std::string& name) {
  try {
    ReadAll(File::Parse(AsBytes(content), name));
    return "";
  } catch (const Error& error) {
    std::string text = error.what();
    if (error.kind() != ErrorKind::kRefused || text.find('\n') != text.npos || text.empty()) throw;
    return text;
  }
}

}  // namespace lockstep::test
