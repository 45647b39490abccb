// safetensors: the checkpoints that conversion reads, and the small files that `logits` writes.
// Format: huggingface/safetensors, "Format": 8 bytes of header length, a JSON header, then the data without holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep {

// An element type by its name in the header. Sub-byte elements are packed.
struct SafetensorsType {
  std::string_view name;  // "BF16"
  uint32_t bits;
};

std::span<const SafetensorsType> AllSafetensorsTypes();
// The type of this name, or null.
const SafetensorsType* FindSafetensorsType(std::string_view name);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;  // never null in a tensor of a file
  std::vector<uint64_t> shape;            // slowest first; empty for a single number
  std::span<const std::byte> data;        // of any alignment: read it with memcpy
  uint32_t file = 0;                      // index of the file that holds it

  uint64_t elements() const;
};

// One safetensors file, or all files that an index names. Opening checks everything but the data: header size (100 MB at
// most), JSON, types, shapes against sizes, holes, overlaps, duplicates. Errors are Refused, one line, with the file
// and the tensor.
class Safetensors {
 public:
  // `path`: a .safetensors file; an index (.json); or a folder with model.safetensors.index.json or model.safetensors.
  // Files that the index names but that are absent are warnings here, and errors where a tensor of theirs is required.
  static Safetensors Open(const std::string& path);
  // Reads one file from memory, which the caller keeps alive; `name` is for messages.
  static Safetensors Parse(std::span<const std::byte> bytes, std::string name);

  // As given to Open or Parse.
  const std::string& name() const { return name_; }
  // By ascending name.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  // Null where there is none.
  const SafetensorsTensor* Find(std::string_view name) const;
  // Refused where there is none, naming the absent file where the index knows it.
  const SafetensorsTensor& Require(std::string_view name) const;
  // The header's __metadata__, of all files.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // What is odd but can be lived with, one line each: files that are absent.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Tells the system that a tensor's bytes were read and their pages may go.
  void Release(const SafetensorsTensor& tensor) const;

 private:
  struct File {
    std::string name;
    std::optional<MappedFile> map;  // none where the bytes are the caller's
    std::span<const std::byte> bytes;
  };

  Safetensors() = default;
  void AddFile(File file);
  void AddMapped(const std::string& path);
  void OpenIndex(const std::string& path);
  void SortTensors();

  std::string name_;
  std::vector<File> files_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::string, std::less<>> absent_;  // tensor -> file that is not there
  std::vector<std::string> warnings_;
};

// A tensor in memory, to be written.
struct SafetensorsItem {
  std::string name;
  std::string_view type;  // "F32", "I32"
  std::vector<uint64_t> shape;
  std::span<const std::byte> data;
};

// A tensor that is still to come.
struct SafetensorsPlan {
  std::string name;
  std::string_view type;
  std::vector<uint64_t> shape;
};

// Writes a file piece by piece, so that it need not fit in memory: sizes first, then bytes, each tensor's in order, the tensors in
// any order. The file appears with Commit(), whole or not at all. Errors are those of WriteSafetensors.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::span<const SafetensorsPlan> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // The next bytes of a tensor, by its index; more than its shape has is a bug.
  void Append(size_t tensor, std::span<const std::byte> bytes);
  // Every tensor must be complete.
  void Commit();

 private:
  struct Range {
    uint64_t at, end;  // in the file
  };
  AtomicFile file_;
  std::vector<Range> left_;  // of each tensor, still to be written
};

// Writes a file, whole or not at all, with the tensors in the order given, the header padded so that data starts at a multiple
// of 8. Refused where it would not load again (duplicate name, size that does not fit the shape); Failed on a full disk.
void WriteSafetensors(const std::string& path, std::span<const SafetensorsItem> items,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
