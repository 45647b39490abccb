// One test for each public report of a tokenizer fault in similar engines, by its serial, and for the
// kind of fault behind it.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "text/tokenizer_models.h"
#include "text/tokenizer_steps.h"
#include "text/tokenizer_test_files.h"
#include "text/tokenizer_testing.h"

namespace lockstep {
namespace {

std::string Repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::vector<std::string> Split(const std::string& pre, const std::string& text) {
  Vocab vocab;
  vocab.splits = FindPretokenizer("test", pre).splits;
  const Splitter splitter(vocab);
  const Splitter::Pieces pieces = splitter.Run(text, true);
  return {pieces.views.begin(), pieces.views.end()};
}

TEST(Reports, B001TextAfterASpecialTokenKeepsItsSpaceMark) {
  const Tokenizer tokenizer = Tokenizer::FromVocab(SmallSentencePiece());
  const auto id = [&](const char* text) { return *tokenizer.Find(text); };
  EXPECT_EQ(tokenizer.Encode("x<s> a", {.parse_special = true}),
            (std::vector<int32_t>{id("▁x"), 1, id("▁"), id("▁a")}));
  EXPECT_EQ(tokenizer.Encode("<s>a", {.parse_special = true}), (std::vector<int32_t>{1, id("▁a")}));
  EXPECT_EQ(tokenizer.Encode("<s></s>", {.parse_special = true}), (std::vector<int32_t>{1, 2}));
}

// The hashes were recorded from the Hugging Face tokenizers library; the file's vocabulary was given to
// it as merges, best score first.
TEST(Reports, B001TenThousandPlacementsOfSpecialsAndBlanksGiveTheReferenceIds) {
  if (!HaveSharedTokenizers()) GTEST_SKIP() << "shared tokenizers are not here";
  const Checkpoint checkpoint("llama2");
  const auto gguf = GgufFile::Open((SharedTokenizers() / "ggml-vocab-llama-spm.gguf").string());
  const std::string parts[] = {"<s>", " ", "a", "the", "  ", "</s>", "é", "\n", " the", "x"};
  for (const auto& [tokenizer, recorded] :
       {std::pair(Tokenizer::FromTokenizerJson(checkpoint.path()), uint64_t{0xf105d90de018c45c}),
        {Tokenizer::FromGguf(gguf), 0xe7c16d2fb8089e38}}) {
    uint64_t state = 12345;
    const auto next = [&state](uint64_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % n;
    };
    uint64_t hash = HashOf({});
    for (int i = 0; i < 10'000; ++i) {
      std::string text;
      for (uint64_t left = 1 + next(12); left > 0; --left) text += parts[next(std::size(parts))];
      hash = HashOf(tokenizer.Encode(text, {.parse_special = true}), hash);
    }
    EXPECT_EQ(hash, recorded) << tokenizer.name();
  }
}

TEST(Reports, B002UnknownCharactersBecomeByteTokensWhereThereAreAll256) {
  const std::string face = "\U0001F999";
  const Tokenizer bytes = Tokenizer::FromVocab(SmallUnigram(true));
  const std::vector<int32_t> ids = bytes.Encode(face);
  std::vector<std::string> texts;
  for (int32_t id : ids) texts.emplace_back(bytes.TextOf(id));
  EXPECT_EQ(texts, (std::vector<std::string>{"▁", "<0xF0>", "<0x9F>", "<0xA6>", "<0x99>"}));
  EXPECT_EQ(bytes.Decode(ids), face);
  EXPECT_EQ(Tokenizer::FromVocab(SmallUnigram(false)).Encode(face), (std::vector<int32_t>{2, 0}));

  Vocab incomplete = SmallUnigram(true);
  incomplete.types.back() = TokenType::kUnused;
  EXPECT_EQ(Tokenizer::FromVocab(incomplete).Encode(face), (std::vector<int32_t>{2, 0}));
}

TEST(Reports, B004AMarkAfterALetterNeverStartsAPiece) {
  const std::string word = "\u0928\u092E\u0938\u094D\u0924\u0947";
  for (const char* pre : {"gpt-4o", "llama4", "tekken", "youtu", "qwen35", "deepseek-v3", "kimi-k2",
                          "granite-embed-multi-97m", "exaone-moe", "tiny_aya", "afmoe"}) {
    EXPECT_EQ(Split(pre, word), std::vector<std::string>{word}) << pre;
  }
  if (!HaveSharedTokenizers()) GTEST_SKIP() << "shared tokenizers are not here";
  const Checkpoint checkpoint("gptoss");
  EXPECT_EQ(Tokenizer::FromTokenizerJson(checkpoint.path()).Encode(word),
            (std::vector<int32_t>{998, 1637, 14681, 628}));
}

TEST(Reports, B005LettersWithMarksTakeLinearTimeUnderTheQwen35Rule) {
  const std::string text = Repeat("x\u0301", 200'000);
  EXPECT_EQ(Split("qwen35", text), std::vector<std::string>{text});
  Tokenizer small = Tokenizer::FromVocab(SmallByteLevel("qwen35"));
  EXPECT_EQ(small.Decode(small.Encode(text)), text);
  if (!HaveSharedTokenizers()) GTEST_SKIP() << "shared tokenizers are not here";
  const Checkpoint checkpoint("qwen3");
  Vocab vocab = VocabFromTokenizerJson(checkpoint.path());
  vocab.splits = FindPretokenizer("test", "qwen35").splits;
  const Tokenizer tokenizer = Tokenizer::FromVocab(vocab);
  EXPECT_EQ(HashOf(tokenizer.Encode(text)), 0x455ad9176f5e7ba5u);
  EXPECT_EQ(HashOf(tokenizer.Encode(Repeat("a\u0301", 200'000))), 0x44d1a59cbbf9ac65u);
}

TEST(Reports, B007LongRunsGiveTheReferenceIdsUnderTheDeepSeekRule) {
  struct Case {
    size_t bytes;
    uint64_t letters;
    uint64_t digits;
  };
  const Case cases[] = {{51'294, 0xa2318d0a424a16ccu, 0x99a6d62e8833bcdbu},
                        {51'295, 0xa1231c0a407e8cc9u, 0x4a3ab3116fe9bda6u},
                        {131'072, 0x6a9be76bdfff2325u, 0x9d981ab1d138687au}};
  for (const Case& c : cases) {
    EXPECT_EQ(Split("deepseek-v3", std::string(c.bytes, 'a')).size(), 1u);
    const auto digits = Split("deepseek-v3", std::string(c.bytes, '7'));
    ASSERT_EQ(digits.size(), (c.bytes + 2) / 3);
    EXPECT_EQ(digits.front(), "777");
    EXPECT_EQ(digits.back(), std::string(c.bytes % 3 == 0 ? 3 : c.bytes % 3, '7'));
  }
  if (!HaveSharedTokenizers()) GTEST_SKIP() << "shared tokenizers are not here";
  const Checkpoint checkpoint("deepseek_v3");
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(checkpoint.path());
  const EncodeOptions with_bos = {.add_special = true};
  for (const Case& c : cases) {
    EXPECT_EQ(HashOf(tokenizer.Encode(std::string(c.bytes, 'a'), with_bos)), c.letters);
    EXPECT_EQ(HashOf(tokenizer.Encode(std::string(c.bytes, '7'), with_bos)), c.digits);
  }
}

TEST(Reports, B008AByteTokenThatNamesNoByteIsRefusedWithItsIndex) {
  for (const char* text :
       {"<0x-1>", "<0xZZ>", "<0x1>", "<0x100>", "<0X41>", "<0x4 >", "0x41", ""}) {
    for (ModelKind kind : {ModelKind::kPlamo2, ModelKind::kSentencePiece, ModelKind::kUnigram}) {
      Vocab vocab = SmallSentencePiece();
      vocab.kind = kind;
      const int32_t id = AddToken(text, TokenType::kByte, 0, &vocab);
      EXPECT_EQ(RefusalOf([&] { Tokenizer::FromVocab(vocab); }),
                fmt::format("v1: tokenizer.ggml.tokens: index {}: expected a byte token <0x00> to "
                            "<0xFF>, found {}",
                            id, text));
    }
  }
}

TEST(Reports, B010OfEqualTokensTheLowestIdWins) {
  Vocab vocab = SmallSentencePiece();
  const int32_t twin = AddToken("▁ab", TokenType::kNormal, 0, &vocab);
  const Tokenizer tokenizer = Tokenizer::FromVocab(vocab);
  const int32_t first = *tokenizer.Find("▁ab");
  EXPECT_LT(first, twin);
  EXPECT_EQ(tokenizer.Encode("ab"), std::vector<int32_t>{first});
  EXPECT_EQ(tokenizer.Decode(std::vector{twin}), "ab");
}

TEST(Reports, B010AFlagToAddATokenThatIsNotThereIsRefusedNamingBothKeys) {
  for (const auto& [flag, key] : {std::pair("add_bos_token", "bos_token_id"),
                                  {"add_eos_token", "eos_token_id"},
                                  {"add_sep_token", "seperator_token_id"}}) {
    const std::string refusal = RefusalOf([flag = flag] {
      GgufVocab file("t5", {"a", "b"}, {1, 1});
      file.writer().Add(fmt::format("tokenizer.ggml.{}", flag), true);
      file.Load();
    });
    EXPECT_NE(refusal.find(flag), refusal.npos) << refusal;
    EXPECT_NE(refusal.find(key), refusal.npos) << refusal;
  }
}

TEST(Reports, B011LongMessagesAreEncodedAndTheNextOneToo) {
  std::mt19937 random(11);
  std::string noise;
  while (noise.size() < 50'000) noise.push_back(static_cast<char>('!' + random() % 90));
  for (const std::string& name : ByteLevelNames()) {
    const Tokenizer tokenizer = Tokenizer::FromVocab(SmallByteLevel(name));
    for (const std::string& text : {std::string(50'000, 'a'), std::string(50'000, 'Q'), noise}) {
      EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text) << name;
    }
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("hello")), "hello") << name;
  }
}

}  // namespace
}  // namespace lockstep
