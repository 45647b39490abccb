// The JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/safetensors.h"

namespace lockstep {

inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";
// huggingface/safetensors refuses larger headers too.
inline constexpr uint64_t kSafetensorsMaxHeader = 100'000'000;
inline constexpr size_t kSafetensorsMaxDims = 16;

struct SafetensorsEntry {
  SafetensorsTensor tensor;  // without data
  uint64_t begin = 0;        // from the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by ascending place, which cover the data without holes
  std::map<std::string, std::string> metadata;
};

// Parses and checks the header of a file with `data_bytes` of data. `file` is for messages,
// printable.
SafetensorsHeader ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                         const std::string& file);

// The tensor -> file map of a model.safetensors.index.json.
std::map<std::string, std::string> ParseSafetensorsIndex(std::string_view json,
                                                         const std::string& file);

}  // namespace lockstep
