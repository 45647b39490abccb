#include "convert/tokenizer_keys.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <boost/json.hpp>

#include "base/file.h"
#include "convert/testing/test_checkpoint.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

const std::string kShared = std::string(LOCKSTEP_SOURCE_DIR) + "/../shared/tokenizers/";

std::string Unpack(const std::string& path) {
  const gzFile in = gzopen(path.c_str(), "rb");
  std::string text, buffer(1 << 20, '\0');
  for (int got; (got = gzread(in, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;) {
    text.append(buffer, 0, static_cast<size_t>(got));
  }
  gzclose(in);
  return text;
}

// The vocabulary of a folder as a file of keys alone.
GgufFile KeysFile(const test::TempFolder& folder, uint64_t size) {
  const Checkpoint checkpoint = Checkpoint::Open(folder / "");
  Keys keys("llama");
  SetTokenizerKeys(checkpoint, size, keys);
  GgufWriter writer(folder / "keys.gguf");
  keys.WriteTo(writer);
  writer.Finish();
  return GgufFile::Open(folder / "keys.gguf");
}

struct Real {
  const char* folder;
  const char* model;
  const char* pre;  // null: none
  bool described;
  // What tokenizer_config.json adds before texts that tokenizer.json itself does not.
  std::vector<int32_t> prefix = {};
};

void PrintTo(const Real& real, std::ostream* out) { *out << real.folder; }

class RealTokenizers : public testing::TestWithParam<Real> {};

TEST_P(RealTokenizers, KeepTheirIdsAndTexts) {
  const std::string shared = kShared + GetParam().folder + "/";
  if (!std::filesystem::exists(shared)) GTEST_SKIP() << shared << " is absent";
  test::TempFolder folder;
  test::TestCheckpoint().Put(folder);
  folder.Put("tokenizer.json", Unpack(shared + "tokenizer.json.gz"));
  std::filesystem::copy_file(shared + "tokenizer_config.json", folder / "tokenizer_config.json");
  const GgufFile file = KeysFile(folder, 300000);
  const GgufMetadata& keys = file.metadata();
  EXPECT_EQ(keys.Required<std::string>("tokenizer.ggml.model"), GetParam().model);
  EXPECT_EQ(keys.Has(kTokenizerDescriptionKey), GetParam().described);
  if (GetParam().pre != nullptr) {
    EXPECT_EQ(keys.Required<std::string>("tokenizer.ggml.pre"), GetParam().pre);
  }
  const Tokenizer tokenizer = Tokenizer::FromGguf(file);
  const boost::json::value vectors = boost::json::parse(ReadFile(shared + "vectors.json", 1 << 28));
  for (const char* kind : {"plain", "with_special"}) {
    for (const auto& v : vectors.at(kind).as_array()) {
      const auto text = boost::json::value_to<std::string>(v.at("text"));
      auto ids = boost::json::value_to<std::vector<int32_t>>(v.at("ids"));
      const bool special = std::string_view(kind) == "with_special";
      if (special) ids.insert(ids.begin(), GetParam().prefix.begin(), GetParam().prefix.end());
      EXPECT_EQ(tokenizer.Encode(text, {.add_special = special, .parse_special = true}), ids)
          << text;
      if (special) continue;
      EXPECT_EQ(tokenizer.Decode(ids, {.skip_special = false}),
                boost::json::value_to<std::string>(v.at("decoded")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, RealTokenizers,
                         testing::Values(Real{"deepseek_v3", "gpt2", "deepseek-v3", false, {0}},
                                         Real{"gemma3", "llama", nullptr, true},
                                         Real{"gptoss", "gpt2", "granite-embed-multi-97m", false},
                                         Real{"llama2", "llama", nullptr, true},
                                         Real{"llama3_1", "gpt2", "llama3", false},
                                         Real{"qwen3", "gpt2", "qwen2", false}),
                         [](const auto& info) { return std::string(info.param.folder); });

std::string WithModel(const std::string& model, const std::string& rest) {
  return R"({"model": )" + model +
         R"(, "added_tokens": [{"id": 0, "content": "<s>", "special": true}], )" + rest + "}";
}

const std::pair<const char*, std::string> kSmall[] = {
    {"unigram",
     WithModel(R"({"type": "Unigram", "unk_id": 1, "vocab": [["<s>", 0], ["<unk>", -9],
       ["\u2581", -2], ["a", -3], ["b", -3], ["ab", -4], ["\u2581a", -1]]})",
               R"("pre_tokenizer": {"type": "Metaspace"}, "decoder": {"type": "Metaspace"})")},
    {"words", WithModel(R"({"type": "WordPiece", "unk_token": "[UNK]", "vocab":
       {"<s>": 0, "[UNK]": 1, "a": 2, "##b": 3, "b": 4, "##a": 5}})",
                        R"("pre_tokenizer": {"type": "BertPreTokenizer"}, "normalizer":
       {"type": "BertNormalizer", "lowercase": true}, "decoder": {"type": "WordPiece"})")},
    {"unknown pre-tokenizer", WithModel(R"({"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2,
       "ab": 3, "\u0120": 4}, "merges": ["a b"]})",
                                        R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [
       {"type": "Split", "pattern": {"Regex": "a|b"}, "behavior": "Isolated"},
       {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
       "decoder": {"type": "ByteLevel"})")},
    {"token with blanks", R"({"model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "\u0120": 2},
       "merges": []}, "added_tokens": [{"id": 0, "content": "<s>", "special": true, "rstrip": true}],
       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
       "decoder": {"type": "ByteLevel"}})"},
};

TEST(TokenizerKeys, DescribeWhatOtherKeysCannotSay) {
  for (const auto& [name, json] : kSmall) {
    SCOPED_TRACE(name);
    test::TempFolder folder;
    test::TestCheckpoint().Put(folder);
    folder.Put("tokenizer.json", json);
    const GgufFile file = KeysFile(folder, 8);
    EXPECT_TRUE(file.metadata().Has(kTokenizerDescriptionKey));
    const Tokenizer converted = Tokenizer::FromGguf(file);
    const Tokenizer original = Tokenizer::FromTokenizerJson(folder / "tokenizer.json");
    for (const char* text : {"ab", "a ab b", "AB ba", "<s>  a", "a<s> b"}) {
      const auto ids = original.Encode(text, {.parse_special = true});
      EXPECT_EQ(converted.Encode(text, {.parse_special = true}), ids) << text;
      EXPECT_EQ(converted.Decode(ids), original.Decode(ids)) << text;
    }
  }
}

}  // namespace
}  // namespace lockstep
