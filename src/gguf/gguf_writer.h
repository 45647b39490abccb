// Writes GGUF version 3 files, whole or not at all, without holding tensor data.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "gguf/gguf_file.h"

namespace lockstep {

// An array that owns its elements, for writing.
//   GgufArrayData::Of<int32_t>(types), GgufArrayData::OfStrings(tokens),
//   GgufArrayData::OfArrays(rows)
struct GgufArrayData {
  GgufValueType element = GgufValueType::kUint8;
  uint64_t count = 0;
  std::string bytes;

  // T: bool, int8_t .. uint64_t, float, double.
  template <typename T>
  static GgufArrayData Of(std::span<const T> elements);
  static GgufArrayData OfStrings(std::span<const std::string_view> elements);
  static GgufArrayData OfStrings(std::span<const std::string> elements);
  static GgufArrayData OfArrays(std::span<const GgufArrayData> elements);
};

// A file in the making: first all metadata and the directory, then the data of every tensor in the
// same order.
//   GgufWriter writer("out.gguf");
//   writer.Add("general.architecture", "llama");
//   writer.AddTensor("output.weight", type_id, {n, v});
//   writer.Write(bytes); ... writer.Finish();
// What would not load again is refused here with the same words (Refused); a failing disk throws
// Failed. Without Finish() no file appears.
class GgufWriter {
 public:
  // `alignment` of tensor data: a power of two of at least 8; written as metadata where it is
  // not 32.
  explicit GgufWriter(const std::string& path, uint32_t alignment = kGgufDefaultAlignment);

  // T: bool, int8_t .. uint64_t, float, double: stored as exactly that type.
  template <typename T>
  void Add(std::string_view key, T value);
  void Add(std::string_view key, const char* value) { Add(key, std::string_view(value)); }
  void Add(std::string_view key, const std::string& value) { Add(key, std::string_view(value)); }
  void Add(std::string_view key, std::string_view value);
  void Add(std::string_view key, const GgufArrayData& value);
  // A value as another file has it. The key general.alignment is the writer's own and refused.
  void Add(std::string_view key, const GgufValue& value);

  // dims: [0..4], fastest first. Returns the tensor's bytes.
  uint64_t AddTensor(std::string_view name, uint32_t type_id, std::span<const uint64_t> dims);
  uint64_t AddTensor(std::string_view name, uint32_t type_id,
                     std::initializer_list<uint64_t> dims) {
    return AddTensor(name, type_id, std::span(dims.begin(), dims.size()));
  }

  // The next bytes of tensor data, in pieces of any size; padding between tensors is added here.
  // Nothing can be added afterwards. Failed where there are more bytes than declared.
  void Write(std::span<const std::byte> data);

  // Failed where a tensor's data is incomplete. The file is there when this returns.
  void Finish();
  // In place of Write() and Finish(): all data is zero, and takes no room where the file system has holes.
  void FinishHollow();

 private:
  struct Declared {
    std::string name;
    uint64_t bytes;
  };
  void WriteHead();
  void PadTo(uint64_t unit);

  AtomicFile file_;
  std::string name_;  // printable
  uint32_t alignment_;
  std::string metadata_;   // encoded pairs
  std::string directory_;  // encoded entries
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> names_;
  std::vector<Declared> tensors_;
  uint64_t next_offset_ = 0;
  bool head_written_ = false;
  size_t current_ = 0;          // tensor that the next data belongs to
  uint64_t current_bytes_ = 0;  // of it written so far
};

}  // namespace lockstep
