// Station 1, the file: a GGUF model mapped into memory, its typed metadata and its tensor
// directory. Format: the GGUF specification of ggml, versions 2 and 3, little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "gguf/metadata.h"
#include "gguf/types.h"

namespace lockstep {

struct GgufSplitName;

inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint32_t kGgufDefaultAlignment = 32;
inline constexpr int kGgufMaxDims = 4;

// One tensor of the directory. Views live as long as the file.
struct GgufTensor {
  std::string_view name;
  const TensorType* type = nullptr;  // never null in a tensor of a file
  int dims_count = 0;                // 0 (a single number) to 4
  // Sizes, fastest first, all at least 1, those past dims_count are 1: dims[0] is a row's length.
  std::array<uint64_t, kGgufMaxDims> dims = {1, 1, 1, 1};
  std::span<const std::byte> data;  // aligned to the file's alignment where the file's bytes are
  uint32_t shard = 0;               // index of the file that holds it

  uint64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  uint64_t row_bytes() const { return dims[0] / type->block * type->block_bytes; }
};

// A GGUF file, or all files of a split one. Opening checks everything that can be checked without
// reading tensor data: every count, size, offset and type, duplicate keys and names, overlaps, and
// that the data lies in the file. Errors are Refused, one line, with the file and the key or
// tensor. The memory taken stays below twice the file's size, whatever the file claims.
class GgufFile {
 public:
  // Maps the file. The first of a split set ("NAME-00001-of-0000N.gguf") opens all; another one is
  // refused with the name of the first.
  static GgufFile Open(const std::string& path);
  // Reads a whole unsplit file from memory, which the caller keeps alive; `name` is for messages.
  static GgufFile Parse(std::span<const std::byte> bytes, std::string name);

  // As given to Open or Parse, not made printable.
  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  size_t shard_count() const { return shards_.size(); }
  // The path of one shard, for messages and for reading in another way.
  const std::string& shard_name(size_t shard) const { return shards_[shard].name; }
  // Bytes of all shards together.
  uint64_t file_bytes() const;
  // The bytes of a shard in front of its tensors' data: metadata and directory.
  std::span<const std::byte> head(size_t shard) const;
  // Tells the system that a tensor's bytes were read and their pages may go.
  void Release(const GgufTensor& tensor) const;

  // Of the first shard.
  const GgufMetadata& metadata() const { return metadata_; }

  // The directory, in file order, shard after shard.
  size_t tensor_count() const { return tensors_.size(); }
  GgufTensor tensor(size_t i) const;  // i < tensor_count()
  std::optional<GgufTensor> FindTensor(std::string_view name) const;
  // Refused "FILE: NAME: tensor is missing" where there is none.
  GgufTensor RequireTensor(std::string_view name) const;

  // for (GgufTensor tensor : file.tensors()) ...
  class TensorRange;
  TensorRange tensors() const;

 private:
  friend class GgufParser;

  struct Shard {
    std::string name;
    std::optional<MappedFile> map;  // none where the bytes are the caller's
    std::span<const std::byte> bytes;
  };
  // The directory is the file itself: only where each entry starts is kept.
  struct Record {
    uint64_t info_at;  // offset of the directory entry
    uint64_t data_at;  // offset of the data
    uint32_t shard;
  };

  GgufFile() = default;
  void OpenShard(const std::string& path, GgufMetadata* metadata);
  void OpenOtherShards(const GgufSplitName& name);
  void IndexTensors();
  std::string_view NameOf(uint32_t i) const;

  std::string name_;
  uint32_t version_ = 0;
  std::vector<Shard> shards_;
  GgufMetadata metadata_;
  std::vector<Record> tensors_;
  std::vector<uint32_t> by_name_;  // indices of tensors_, ascending by name
};

class GgufFile::TensorRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = GgufTensor;
    using difference_type = std::ptrdiff_t;
    using pointer = const GgufTensor*;
    using reference = GgufTensor;

    Iterator(const GgufFile* file, size_t i) : file_(file), i_(i) {}
    GgufTensor operator*() const { return file_->tensor(i_); }
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    void operator++(int) { ++i_; }
    bool operator==(const Iterator& other) const { return i_ == other.i_; }

   private:
    const GgufFile* file_;
    size_t i_;
  };

  explicit TensorRange(const GgufFile* file) : file_(file) {}
  Iterator begin() const { return {file_, 0}; }
  Iterator end() const { return {file_, file_->tensor_count()}; }

 private:
  const GgufFile* file_;
};

inline GgufFile::TensorRange GgufFile::tensors() const { return TensorRange(this); }

}  // namespace lockstep
