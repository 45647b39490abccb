// Names of split files: "NAME-00001-of-00003.gguf".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct GgufSplitName {
  std::string prefix;   // with folder: "models/NAME"
  uint32_t number = 0;  // from 1
  uint32_t count = 0;

  std::string PathOf(uint32_t n) const;  // of shard `n`, from 1
};

// The parts of a split file's path, or nothing where it is not named like one.
std::optional<GgufSplitName> ParseGgufSplitName(std::string_view path);

}  // namespace lockstep
