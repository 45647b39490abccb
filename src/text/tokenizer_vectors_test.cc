// Ids and texts of real vocabularies, as recorded from the models' own tokenizers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path Shared() { return fs::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "tokenizers"; }

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> SplitAt(const std::string& text, const std::string& mark) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t hit; (hit = text.find(mark, at)) != text.npos; at = hit + mark.size()) {
    parts.push_back(text.substr(at, hit - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<int32_t> ParseIds(const std::string& line) {
  std::istringstream in(line);
  std::vector<int32_t> ids;
  for (int32_t id; in >> id;) ids.push_back(id);
  return ids;
}

struct Recorded {
  std::string text;
  std::vector<int32_t> ids;
};

std::vector<Recorded> ReadRecorded(const fs::path& gguf) {
  const auto texts = SplitAt(ReadAll(gguf.string() + ".inp"), "\n__ggml_vocab_test__\n");
  const auto lines = SplitAt(ReadAll(gguf.string() + ".out"), "\n");
  std::vector<Recorded> recorded;
  for (size_t i = 0; i < texts.size() && i < lines.size(); ++i) {
    recorded.push_back({texts[i], ParseIds(lines[i])});
  }
  return recorded;
}

class GgufVectors : public testing::TestWithParam<const char*> {};

TEST_P(GgufVectors, GiveTheRecordedIdsAndTheTextBack) {
  const fs::path path = Shared() / (std::string("ggml-vocab-") + GetParam() + ".gguf");
  if (!fs::exists(path)) GTEST_SKIP() << "shared tokenizers are not here";
  const Tokenizer tokenizer = Tokenizer::FromGguf(GgufFile::Open(path.string()));
  const std::vector<Recorded> recorded = ReadRecorded(path);
  ASSERT_GT(recorded.size(), 40u);
  const bool lossless = std::string(GetParam()) != "bert-bge";
  for (const Recorded& r : recorded) {
    EXPECT_EQ(tokenizer.Encode(r.text), r.ids) << r.text;
    if (lossless) {
      EXPECT_EQ(tokenizer.Decode(r.ids), r.text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GgufVectors,
                         testing::Values("bert-bge", "deepseek-coder", "deepseek-llm", "falcon",
                                         "gpt-2", "llama-spm", "mpt", "phi-3", "refact",
                                         "starcoder"));

}  // namespace
}  // namespace lockstep
