// Ids and texts of real vocabularies, as recorded from the models' own tokenizers.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "text/tokenizer_test_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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

std::vector<int32_t> IdsOf(const boost::json::value& value) {
  return boost::json::value_to<std::vector<int32_t>>(value);
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
  const fs::path path = SharedTokenizers() / (std::string("ggml-vocab-") + GetParam() + ".gguf");
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

class FolderVectors : public testing::TestWithParam<const char*> {};

TEST_P(FolderVectors, GiveTheRecordedIdsAndTexts) {
  if (!fs::exists(SharedTokenizers() / GetParam()))
    GTEST_SKIP() << "shared tokenizers are not here";
  const Checkpoint checkpoint(GetParam());
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(checkpoint.path());
  const boost::json::value vectors =
      boost::json::parse(ReadAll(SharedTokenizers() / GetParam() / "vectors.json"));
  const auto& plain = vectors.at("plain").as_array();
  ASSERT_GE(plain.size(), 450u);
  for (const auto& v : plain) {
    const std::string text = boost::json::value_to<std::string>(v.at("text"));
    const std::vector<int32_t> ids = IdsOf(v.at("ids"));
    EXPECT_EQ(tokenizer.Encode(text, {.parse_special = true}), ids) << text;
    const std::string decoded = boost::json::value_to<std::string>(v.at("decoded"));
    EXPECT_EQ(tokenizer.Decode(ids, {.skip_special = false}), decoded) << text;
    StreamDecoder stream(tokenizer, {.skip_special = false});
    std::string streamed;
    for (int32_t id : ids) streamed += stream.Add(id);
    EXPECT_EQ(streamed + stream.Finish(), decoded) << text;
  }
  const auto& with_special = vectors.at("with_special").as_array();
  ASSERT_GE(with_special.size(), 3u);
  for (const auto& v : with_special) {
    const std::string text = boost::json::value_to<std::string>(v.at("text"));
    EXPECT_EQ(tokenizer.Encode(text, {.add_special = true, .parse_special = true}),
              IdsOf(v.at("ids")))
        << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, FolderVectors,
                         testing::Values("deepseek_v3", "gemma3", "gptoss", "llama2", "llama3_1",
                                         "qwen3"));

// The vocabularies of these files are not here, but those of the folders have the same ids.
TEST(FolderVectors, GiveTheIdsOfTheSameVocabularyInAGgufFile) {
  if (!fs::exists(SharedTokenizers() / "qwen3")) GTEST_SKIP() << "shared tokenizers are not here";
  for (const auto& [folder, file] : {std::pair("qwen3", "qwen2"), {"llama3_1", "llama-bpe"}}) {
    const Checkpoint checkpoint(folder);
    const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(checkpoint.path());
    for (const Recorded& r :
         ReadRecorded(SharedTokenizers() / (std::string("ggml-vocab-") + file + ".gguf"))) {
      EXPECT_EQ(tokenizer.Encode(r.text), r.ids) << folder << r.text;
    }
  }
}

}  // namespace
}  // namespace lockstep
