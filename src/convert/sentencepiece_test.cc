#include "convert/sentencepiece.h"

#include <gtest/gtest.h>

#include "convert/testing/test_checkpoint.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string Number(uint64_t id, uint64_t value) { return Varint(id << 3) + Varint(value); }
std::string Bytes(uint64_t id, const std::string& bytes) {
  return Varint(id << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Float(uint64_t id, float value) {
  return Varint(id << 3 | 5) + test::BytesOf<float>({value});
}
std::string Piece(const std::string& text, float score, uint64_t type) {
  return Bytes(1, Bytes(1, text) + Float(2, score) + Number(3, type));
}

// Merges by score: "ab" is one token.
std::string Model() {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) + Piece("\u2581", -4, 1) +
         Piece("a", -2, 1) + Piece("b", -3, 1) + Piece("ab", -1, 1) +
         Bytes(2, Number(3, 2) + Number(40, 0)) + Bytes(3, Number(3, 1) + Number(4, 0));
}

TEST(SentencePieces, ReadsPiecesAndRules) {
  const SentencePieces model = ParseSentencePieces("m", Model());
  EXPECT_EQ(model.texts.size(), 7u);
  EXPECT_EQ(model.texts[6], "ab");
  EXPECT_EQ(model.scores[6], -1);
  EXPECT_EQ(model.types[1], TokenType::kControl);
  EXPECT_FALSE(model.unigram);
  EXPECT_TRUE(model.space_before);
  EXPECT_FALSE(model.collapse_spaces);
}

TEST(SentencePieces, AreReadOrRefusedWhereverTheFileEnds) {
  const std::string whole = Model();
  size_t refused = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string message =
        test::MessageOf([&] { ParseSentencePieces("m", whole.substr(0, size)); });
    refused += !message.empty();
    EXPECT_EQ(message.find('\n'), message.npos);
  }
  EXPECT_GT(refused, whole.size() / 2);
}

TEST(SentencePieces, AreReadOrRefusedWithAnyByteChanged) {
  const std::string whole = Model();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int flip : {1, 0x80, 0xFF}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      EXPECT_EQ(test::MessageOf([&] { ParseSentencePieces("m", changed); }).find('\n'),
                std::string::npos);
    }
  }
}

TEST(SentencePieces, BecomeAVocabularyThatMergesByScore) {
  test::TestCheckpoint checkpoint;
  test::TempFolder folder;
  checkpoint.Put(folder);
  std::filesystem::remove(folder / "tokenizer.json");
  folder.Put("tokenizer.model", Model());
  folder.Put("added_tokens.json", R"({"<new>": 7})");
  const GgufFile file = GgufFile::Open(test::TestCheckpoint::ConvertFolder(folder));
  EXPECT_EQ(file.metadata().Required<std::string>("tokenizer.ggml.model"), "llama");
  const Tokenizer tokenizer = Tokenizer::FromGguf(file);
  EXPECT_EQ(tokenizer.Encode("ab<new>", {.add_special = true, .parse_special = true}),
            (std::vector<int32_t>{1, 3, 6, 7}));
}

}  // namespace
}  // namespace lockstep
