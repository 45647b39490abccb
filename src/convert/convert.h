// Checkpoints of transformers to GGUF.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

struct ConvertOptions {
  std::string folder;         // config.json, safetensors, tokenizer
  std::string output;         // appears whole or not at all
  std::string type = "auto";  // of matrices: f32, f16, bf16, q8_0; auto: the checkpoint's own
  bool dry_run = false;       // everything but writing
};

struct ConvertResult {
  std::string_view architecture;
  uint64_t tensors = 0;
  uint64_t bytes = 0;  // of their data
};

// Converts one checkpoint. Refused in one line, naming key or tensor, where it is not acceptable;
// Failed where writing fails. Takes memory for a few rows of tensors, and for the vocabulary.
ConvertResult ConvertCheckpoint(const ConvertOptions& options);

}  // namespace lockstep
