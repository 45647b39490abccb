// Parses one file of a model into a GgufFile.
#pragma once

#include <cstdint>
#include <string>

#include "gguf/cursor.h"
#include "gguf/gguf_file.h"

namespace lockstep {

// The entry of the directory at the cursor, without its data, and the offset it claims; every field
// is checked except where the data lies.
struct GgufTensorInfo {
  GgufTensor tensor;
  uint64_t offset = 0;  // from the start of the data section
  uint64_t bytes = 0;
};
GgufTensorInfo ReadGgufTensorInfo(ByteCursor& cursor);

// A metadata pair at the cursor: its key, where the key's text lies, and its value's type; all is
// checked.
struct GgufPair {
  std::string_view key;
  uint64_t key_at = 0;
  GgufValueType type = GgufValueType::kUint8;
};
GgufPair ReadGgufPair(ByteCursor& cursor);

class GgufParser {
 public:
  // Appends shard `shard` of `file`, whose bytes are in place, to the directory; its metadata goes
  // to `metadata`.
  GgufParser(GgufFile* file, uint32_t shard, GgufMetadata* metadata);
  void Parse();

 private:
  void ParseHeader();
  void ParseMetadata();
  void ParseDirectory();
  void CheckPlaces(size_t first);

  GgufFile* file_;
  uint32_t shard_;
  GgufMetadata* metadata_;
  ByteCursor cursor_;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
};

}  // namespace lockstep
