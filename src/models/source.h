// Station 2, the architecture: a file's hyper-parameters under the architecture's prefix, and which tensors it has.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_file.h"

namespace lockstep {

struct Graph;

// What a run may ask of a model beyond what the file says.
struct ModelOptions {
  int64_t context = 0;  // positions a sequence may reach, 0: the file's
  // Heads are rotated (ops/hadamard.h) before they are cached, for caches of few bits.
  bool rotate_keys = false, rotate_values = false;
  // The model's own graph, where what is wanted is that of its first next-token block (models/next_token.h), which runs beside it.
  const Graph* beside = nullptr;
};

// One model file as its architecture reads it. Keys are given without the prefix: "attention.head_count".
class ModelSource {
 public:
  ModelSource(const GgufFile& file, const ModelOptions& options);

  const GgufFile& file() const { return file_; }
  const GgufMetadata& metadata() const { return file_.metadata(); }
  const std::string& architecture() const { return architecture_; }
  const ModelOptions& options() const { return options_; }
  // Layers of the model itself, and blocks behind them that predict the token after the next. Refused where all are such blocks.
  int64_t layers() const { return Count("block_count") - next_token_blocks(); }
  int64_t next_token_blocks() const;

  // Sizes and counts: 1 .. 2^31, or from `min`.
  int64_t Count(std::string_view key, uint64_t min = 1) const;
  std::optional<int64_t> OptionalCount(std::string_view key, uint64_t min = 1) const;
  // Finite numbers.
  float Float(std::string_view key) const;
  std::optional<float> OptionalFloat(std::string_view key) const;
  float FloatOr(std::string_view key, float otherwise) const { return OptionalFloat(key).value_or(otherwise); }
  std::string StringOr(std::string_view key, std::string otherwise) const;
  bool BoolOr(std::string_view key, bool otherwise) const;
  // One number for all layers, or an array of one for each.
  std::vector<int64_t> CountPerLayer(std::string_view key, int64_t layers, uint64_t min = 1) const;
  std::optional<std::vector<int64_t>> OptionalCountPerLayer(std::string_view key, int64_t layers, uint64_t min = 0) const;
  // The same for finite numbers, empty where the key is missing.
  std::vector<float> OptionalFloatPerLayer(std::string_view key, int64_t layers) const;

  bool HasTensor(std::string_view name) const { return file_.FindTensor(name).has_value(); }
  // Length of a tensor's rows / number of its rows; the tensor must exist.
  int64_t RowLength(std::string_view name) const;
  int64_t RowCount(std::string_view name) const;
  // A small f32 tensor's values (rope factors). Refused where it is not F32 or longer than 65536.
  std::vector<float> SmallTensor(std::string_view name) const;

  // Full key, for messages.
  std::string Key(std::string_view key) const { return architecture_ + "." + std::string(key); }
  // Throws Refused "FILE: ARCH.KEY: text".
  [[noreturn]] void Refuse(std::string_view key, std::string_view text) const { metadata().Refuse(Key(key), text); }

 private:
  float ExpectFinite(std::string_view key, float value) const;

  const GgufFile& file_;
  std::string architecture_;
  ModelOptions options_;
};

}  // namespace lockstep
