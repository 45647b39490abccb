// Vocabulary files for tests: the shared real ones, and small GGUF files made on the spot.
#pragma once

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "gguf/gguf_writer.h"
#include "text/tokenizer.h"

namespace lockstep {

inline std::filesystem::path SharedTokenizers() {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "tokenizers";
}
inline bool HaveSharedTokenizers() { return std::filesystem::exists(SharedTokenizers() / "qwen3"); }

inline std::filesystem::path TemporaryPath(const std::string& name) {
  return std::filesystem::temp_directory_path() / fmt::format("tokenizer-{}-{}", name, getpid());
}

inline std::string Unpack(const std::filesystem::path& path) {
  const gzFile in = gzopen(path.c_str(), "rb");
  if (in == nullptr) return {};
  std::string text;
  std::vector<char> buffer(1 << 20);
  for (int got; (got = gzread(in, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  gzclose(in);
  return text;
}

// A folder with a tokenizer.json, removed with the object.
class Checkpoint {
 public:
  // One of the shared ones, unpacked.
  explicit Checkpoint(const std::string& shared) : path_(TemporaryPath(shared)) {
    std::filesystem::create_directories(path_);
    Write("tokenizer.json", Unpack(SharedTokenizers() / shared / "tokenizer.json.gz"));
    std::filesystem::copy_file(SharedTokenizers() / shared / "tokenizer_config.json",
                               path_ / "tokenizer_config.json",
                               std::filesystem::copy_options::overwrite_existing);
  }
  Checkpoint(const std::string& name, const std::string& json) : path_(TemporaryPath(name)) {
    std::filesystem::create_directories(path_);
    Write("tokenizer.json", json);
  }
  Checkpoint(const Checkpoint&) = delete;
  ~Checkpoint() { std::filesystem::remove_all(path_); }

  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// A GGUF file with a vocabulary and what the test adds; removed with the object.
class GgufVocab {
 public:
  GgufVocab(const std::string& model, const std::vector<std::string>& tokens,
            const std::vector<int32_t>& types)
      : path_(TemporaryPath("vocab.gguf")), writer_(path_.string()) {
    writer_.Add("tokenizer.ggml.model", model);
    writer_.Add("tokenizer.ggml.tokens", GgufArrayData::OfStrings(std::span(tokens)));
    if (!types.empty()) {
      writer_.Add("tokenizer.ggml.token_type",
                  GgufArrayData::Of<int32_t>(std::span<const int32_t>(types)));
    }
    if (model == "t5" || model == "llama") AddScores(std::vector<float>(tokens.size(), -1.0f));
  }
  GgufVocab(const GgufVocab&) = delete;
  ~GgufVocab() { std::filesystem::remove(path_); }

  GgufWriter& writer() { return writer_; }
  void AddScores(const std::vector<float>& scores) {
    writer_.Add("tokenizer.ggml.scores", GgufArrayData::Of<float>(std::span(scores)));
  }
  Tokenizer Load() {
    writer_.Finish();
    return Tokenizer::FromGguf(GgufFile::Open(path_.string()));
  }

 private:
  std::filesystem::path path_;
  GgufWriter writer_;
};

}  // namespace lockstep
