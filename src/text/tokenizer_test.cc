#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <random>

#include "text/tokenizer_test_files.h"
#include "text/tokenizer_testing.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

TEST(Tokenizer, ReadsControlTokensFromTextOnlyWhenAsked) {
  const Tokenizer tokenizer = Tokenizer::FromVocab(SmallByteLevel("gpt-2"));
  const std::string text = "<|im_start|>hell<|im_end|>";
  const int32_t start = *tokenizer.Find("<|im_start|>");
  const int32_t end = *tokenizer.Find("<|im_end|>");
  EXPECT_EQ(tokenizer.Encode(text, {.parse_special = true}),
            (Ids{start, *tokenizer.Find("hell"), end}));
  for (int32_t id : tokenizer.Encode(text)) EXPECT_FALSE(tokenizer.IsSpecial(id));
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
}

TEST(Tokenizer, NeverSpellsAControlOrByteTokenFromPlainText) {
  const Tokenizer spm = Tokenizer::FromVocab(SmallSentencePiece());
  for (const char* text : {"<s>", "</s>", "<unk>", "<0x41>", "x<s>x"}) {
    for (int32_t id : spm.Encode(text)) {
      EXPECT_FALSE(spm.IsSpecial(id)) << text;
    }
    EXPECT_EQ(spm.Decode(spm.Encode(text)), text);
  }
}

TEST(Tokenizer, TakesUserDefinedTokensWholeFromAnyText) {
  Vocab vocab = SmallByteLevel("gpt-2");
  const int32_t id = static_cast<int32_t>(vocab.tokens.size());
  vocab.tokens.push_back("<tool>");
  vocab.types.push_back(TokenType::kUserDefined);
  vocab.added.push_back({.id = id});
  const Tokenizer tokenizer = Tokenizer::FromVocab(vocab);
  const Ids ids = tokenizer.Encode("a<tool>b");
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[1], id);
  EXPECT_EQ(tokenizer.Decode(ids), "a<tool>b");
}

TEST(Tokenizer, PutsAroundATextWhatTheVocabularyWants) {
  Vocab vocab = SmallSentencePiece();
  vocab.suffix = {2};
  const Tokenizer tokenizer = Tokenizer::FromVocab(vocab);
  EXPECT_EQ(tokenizer.Encode("", {.add_special = true}), (Ids{1, 2}));
  EXPECT_EQ(tokenizer.Encode(""), Ids{});
  const Ids ids = tokenizer.Encode("a", {.add_special = true});
  EXPECT_EQ(ids, (Ids{1, *tokenizer.Find("▁a"), 2}));
  EXPECT_EQ(tokenizer.Decode(ids), "a");
  EXPECT_EQ(tokenizer.Decode(ids, {.skip_special = false}), "<s> a</s>");
  EXPECT_EQ(tokenizer.Decode(ids, {.at_start = false}), " a");
}

TEST(Tokenizer, EncodesBytesThatAreNoUtf8AsReplacementCharacters) {
  for (const Tokenizer& tokenizer :
       {Tokenizer::FromVocab(SmallByteLevel("llama-bpe")),
        Tokenizer::FromVocab(SmallSentencePiece()), Tokenizer::FromVocab(SmallUnigram(true))}) {
    EXPECT_EQ(tokenizer.Encode("a\xFF\xE2\x96z"), tokenizer.Encode("a\uFFFD\uFFFDz"));
  }
}

TEST(Tokenizer, RefusesIdsThatAreNoTokens) {
  const Tokenizer tokenizer = Tokenizer::FromVocab(SmallUnigram(false));
  for (int32_t id : {-1, tokenizer.size(), std::numeric_limits<int32_t>::max(),
                     std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(RefusalOf([&] { tokenizer.Decode(std::vector{id}); }),
              fmt::format("v3: token id: expected 0 to 6, found {}", id));
    StreamDecoder stream(tokenizer);
    EXPECT_NE(RefusalOf([&] { stream.Add(id); }), "");
  }
}

TEST(StreamDecoder, NeverGivesHalfACharacter) {
  const Tokenizer tokenizer = Tokenizer::FromVocab(SmallByteLevel("gpt-2"));
  const std::string text = "é🙂漢";
  StreamDecoder stream(tokenizer);
  std::string joined;
  for (int32_t id : tokenizer.Encode(text)) {
    const std::string piece = stream.Add(id);
    EXPECT_TRUE(IsUtf8(piece));
    joined += piece;
    EXPECT_LE(stream.held(), 3u);
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(stream.Finish(), "");
}

TEST(StreamDecoder, GivesWhatDecodeGivesForEveryOrderOfBytes) {
  const Tokenizer tokenizer = Tokenizer::FromVocab(SmallByteLevel("gpt-2"));
  const std::vector<uint8_t> bytes = {0x41, 0x80, 0xBF, 0xC3, 0xE2, 0x96,
                                      0xED, 0xA0, 0xF0, 0x9F, 0xFF};
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    Ids ids;
    for (size_t i = 0; i < 6; ++i) ids.push_back(bytes[random() % bytes.size()]);
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (int32_t id : ids) {
      joined += stream.Add(id);
      ASSERT_TRUE(IsUtf8(joined));
    }
    ASSERT_EQ(joined + stream.Finish(), tokenizer.Decode(ids));
  }
}

TEST(StreamDecoder, GivesAReplacementCharacterForWhatWasLeftIncomplete) {
  const Tokenizer tokenizer = Tokenizer::FromVocab(SmallByteLevel("gpt-2"));
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.Add(0xF0), "");
  EXPECT_EQ(stream.Add(0x9F), "");
  EXPECT_EQ(stream.held(), 2u);
  EXPECT_EQ(stream.Finish(), "\uFFFD");
  EXPECT_EQ(stream.Add('a'), "a");
}

TEST(Specials, AreFoundByTheirTextsAndEndGeneration) {
  const Tokenizer tokenizer = Tokenizer::FromVocab(SmallByteLevel("gpt-2"));
  const int32_t end = *tokenizer.Find("<|im_end|>");
  EXPECT_EQ(tokenizer.special(Special::kEos), end);
  EXPECT_EQ(tokenizer.special(Special::kEot), end);
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(end));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(*tokenizer.Find("<|im_start|>")));
  EXPECT_FALSE(tokenizer.special(Special::kFimPrefix).has_value());
}

TEST(Specials, EndOfAMessageEndsNoAnswerWhereThereAreReturnAndCall) {
  Vocab vocab = SmallByteLevel("gpt-4o");
  for (const char* text : {"<|return|>", "<|call|>", "<|end|>"}) {
    vocab.types.push_back(TokenType::kControl);
    vocab.added.push_back({.id = static_cast<int32_t>(vocab.tokens.size())});
    vocab.tokens.push_back(text);
  }
  const Tokenizer tokenizer = Tokenizer::FromVocab(vocab);
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(*tokenizer.Find("<|return|>")));
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(*tokenizer.Find("<|call|>")));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(*tokenizer.Find("<|end|>")));
}

TEST(Specials, ATextThatMergesSpellIsText) {
  Vocab vocab = SmallByteLevel("gpt-2");
  for (const auto& [left, right] : {std::pair("<", "/"), {"</", "s"}, {"</s", ">"}}) {
    vocab.tokens.push_back(std::string(left) + right);
    vocab.types.push_back(TokenType::kNormal);
    vocab.merges.push_back({left, right});
  }
  const Tokenizer tokenizer = Tokenizer::FromVocab(vocab);
  EXPECT_EQ(tokenizer.TypeOf(*tokenizer.Find("</s>")), TokenType::kNormal);
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(*tokenizer.Find("</s>")));
}

TEST(Pretokenizers, RefuseAnUnknownNameWithTheKnownOnes) {
  const std::string refusal = RefusalOf([] { FindPretokenizer("m.gguf", "no such\nrule"); });
  EXPECT_TRUE(refusal.starts_with("m.gguf: tokenizer.ggml.pre: expected one of ")) << refusal;
  EXPECT_NE(refusal.find(" qwen2 "), refusal.npos);
  EXPECT_NE(refusal.find("found no such\\x0Arule"), refusal.npos) << refusal;
}

TEST(Pretokenizers, AllNamesCompileAndLoseNothing) {
  EXPECT_GT(PretokenizerNames().size(), 70u);
  const std::string text =
      "Hello WORLD's 12345 ½ \t\n\n  नमस्ते 漢字かな 한국어 🙂\u180E\u0301 x_y "
      "'LL "
      " ";
  for (const std::string& name : ByteLevelNames()) {
    const Tokenizer tokenizer = Tokenizer::FromVocab(SmallByteLevel(name));
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text) << name;
  }
}

TEST(Vocab, RefusesWhatDoesNotFitTogether) {
  const std::pair<std::function<void(Vocab*)>, const char*> cases[] = {
      {[](Vocab* v) { v->scores.pop_back(); },
       "v1: tokenizer.ggml.scores: expected 271 scores, one a token, found 270"},
      {[](Vocab* v) { v->scores.clear(); },
       "v1: tokenizer.ggml.scores: expected 271 scores, one a token, found 0"},
      {[](Vocab* v) { v->scores[5] = std::numeric_limits<float>::quiet_NaN(); },
       "v1: tokenizer.ggml.scores: index 5: expected a finite number, found nan"},
      {[](Vocab* v) { v->types.push_back(TokenType::kNormal); },
       "v1: tokenizer.ggml.token_type: expected 271 types, one a token, found 272"},
      {[](Vocab* v) { v->types[7] = static_cast<TokenType>(99); },
       "v1: tokenizer.ggml.token_type: index 7: expected 0 to 6, found 99"},
      {[](Vocab* v) { v->special_id(Special::kEos) = 271; },
       "v1: tokenizer.ggml.eos_token_id: expected a token id below 271, found 271"},
      {[](Vocab* v) { *v = Vocab{.name = "v1", .key_prefix = "tokenizer.ggml."}; },
       "v1: tokenizer.ggml.tokens: expected 1 to 16777216 tokens, found 0"},
  };
  for (const auto& [spoil, refusal] : cases) {
    Vocab vocab = SmallSentencePiece();
    spoil(&vocab);
    EXPECT_EQ(RefusalOf([&] { Tokenizer::FromVocab(vocab); }), refusal);
  }
}

TEST(Vocab, RefusesMergesOfUnknownParts) {
  for (const auto& [left, right, missing] :
       {std::tuple("h", "zz", "zz"), {"zz", "h", "zz"}, {"h", "l", "hl"}}) {
    Vocab vocab = SmallByteLevel("gpt-2");
    vocab.merges.push_back({left, right});
    EXPECT_EQ(
        RefusalOf([&] { Tokenizer::FromVocab(vocab); }),
        fmt::format(
            "v2: tokenizer.ggml.merges: index 6: expected tokens, found \"{}\", which is none",
            missing));
  }
}

TEST(GgufVocab, RefusesBadFilesInOneLineNamingTheKey) {
  const std::pair<std::function<void(GgufVocab*)>, const char*> cases[] = {
      {[](GgufVocab* f) {
         f->writer().Add("tokenizer.ggml.precompiled_charsmap",
                         GgufArrayData::Of<int8_t>(std::vector<int8_t>{1, 2, 3}));
       },
       "precompiled_charsmap"},
      {[](GgufVocab* f) {
         f->writer().Add("tokenizer.ggml.precompiled_charsmap",
                         GgufArrayData::Of<uint8_t>(std::vector<uint8_t>(8, 255)));
       },
       "precompiled_charsmap"},
      {[](GgufVocab* f) { f->writer().Add("tokenizer.ggml.eos_token_id", uint32_t{3}); },
       "eos_token_id"},
      {[](GgufVocab* f) { f->writer().Add("tokenizer.ggml.bos_token_id", "x"); }, "bos_token_id"},
      {[](GgufVocab* f) { f->writer().Add("tokenizer.ggml.add_bos_token", uint8_t{1}); },
       "add_bos_token"},
  };
  for (const auto& [spoil, key] : cases) {
    GgufVocab file("t5", {"a", "b", "c"}, {1, 1, 1});
    spoil(&file);
    const std::string refusal = RefusalOf([&] { file.Load(); });
    EXPECT_NE(refusal.find(key), refusal.npos) << key << ": " << refusal;
    EXPECT_EQ(refusal.find("more than one line"), refusal.npos);
  }
  GgufVocab types("t5", {"a", "b"}, {1, 99});
  EXPECT_NE(RefusalOf([&] { types.Load(); }).find("token_type"), std::string::npos);
  GgufVocab model("gpt5", {"a"}, {1});
  EXPECT_NE(RefusalOf([&] { model.Load(); }).find("expected one of llama gpt2"), std::string::npos);
}

TEST(GgufVocab, IgnoresAPaddingIdPastTheEndAndIdsThatSayNone) {
  GgufVocab file("t5", {"a", "b", "c"}, {1, 1, 1});
  file.writer().Add("tokenizer.ggml.padding_token_id", uint32_t{3});
  file.writer().Add("tokenizer.ggml.bos_token_id", uint32_t{0xFFFFFFFF});
  const Tokenizer tokenizer = file.Load();
  EXPECT_FALSE(tokenizer.special(Special::kPad).has_value());
  EXPECT_FALSE(tokenizer.special(Special::kBos).has_value());
}

TEST(GgufVocab, MatchesTheLongestBytesOfAnRwkvVocabulary) {
  GgufVocab file(
      "rwkv", {"<|rwkv_tokenizer_end_of_text|>", "a", "ab", "\\xe6\\x97", "\\xa5", "\\n", "\\\\"},
      {3, 1, 1, 1, 1, 1, 1});
  const Tokenizer tokenizer = file.Load();
  EXPECT_EQ(tokenizer.Encode("aba日\n\\"), (Ids{2, 1, 3, 4, 5, 6}));
  EXPECT_EQ(tokenizer.Decode(Ids{2, 1, 3, 4, 5, 6}), "aba日\n\\");
  for (const char* text : {"\\x4", "\\xzz", "\\"}) {
    GgufVocab bad("rwkv", {"a", text}, {1, 1});
    EXPECT_NE(RefusalOf([&] { bad.Load(); }).find("tokens: index 1"), std::string::npos) << text;
  }
}

TEST(GgufVocab, CutsWordsForWordPiece) {
  GgufVocab file("bert", {"[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁!", "▁a"},
                 {3, 3, 3, 1, 1, 1, 1, 1});
  file.writer().Add("tokenizer.ggml.unknown_token_id", uint32_t{0});
  file.writer().Add("tokenizer.ggml.cls_token_id", uint32_t{1});
  file.writer().Add("tokenizer.ggml.seperator_token_id", uint32_t{2});
  const Tokenizer tokenizer = file.Load();
  EXPECT_EQ(tokenizer.Encode("UNÀFFable!  a zzz", {.add_special = true}),
            (Ids{1, 3, 4, 5, 6, 7, 0, 2}));
  EXPECT_EQ(tokenizer.Encode("únaffable!"), (Ids{3, 4, 5, 6}));
  EXPECT_EQ(tokenizer.Decode(Ids{3, 4, 5, 6}), "unaffable!");
}

TEST(TokenizerJson, RefusesBadFilesInOneLineNamingTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected JSON"},
      {"[]", "expected an object"},
      {"{}", "model: expected a value, found none"},
      {R"({"model":{"type":"CTC"}})", "model.type: expected BPE, Unigram or WordPiece"},
      {R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})",
       "model.vocab: expected an integer"},
      {R"({"model":{"type":"BPE","vocab":{"a":1e300},"merges":[]}})",
       "model.vocab: expected an integer"},
      {R"({"model":{"type":"BPE","vocab":{"a":99999999},"merges":[]}})",
       "model.vocab: expected an integer"},
      {R"({"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}})", "model.vocab: id 0"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a"]}})",
       "model.merges[0]: expected two tokens"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a",1]]}})", "model.merges[0]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})", "model.merges: index 0"},
      {R"({"model":{"type":"Unigram","unk_id":7,"vocab":[["a",0]]}})", "model.unk_id"},
      {R"({"model":{"type":"Unigram","vocab":[["a"]]}})", "model.vocab[0]"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"X"}})",
       "pre_tokenizer.type: expected one of Sequence ByteLevel"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(["}}})",
       "expected a regular expression"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":{"type":"Precompiled","precompiled_charsmap":"!"}})",
       "normalizer.precompiled_charsmap: expected base64"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":[{"id":0,"content":"b"}]})",
       "added_tokens[0]: id 0"},
      {R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"post_processor":{"type":"BertProcessing","cls":["x",9],"sep":["y",0]}})",
       "prefix: expected a token id below 1, found 9"},
  };
  for (const auto& [json, what] : cases) {
    const Checkpoint checkpoint("bad", json);
    const std::string refusal = RefusalOf([&] { Tokenizer::FromTokenizerJson(checkpoint.path()); });
    EXPECT_NE(refusal.find(what), refusal.npos) << json << "\n" << refusal;
    EXPECT_EQ(refusal.find("more than one line"), refusal.npos);
  }
  EXPECT_NE(RefusalOf([] { Tokenizer::FromTokenizerJson("/no/such/folder"); }), "");
}

TEST(TokenizerJson, RefusesATextThatANormalizerWouldBlowUp) {
  const std::string model = R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":)";
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaa"})";
  const Checkpoint checkpoint("growth", model + R"({"type":"Sequence","normalizers":[)" + twice +
                                            "," + twice + "," + twice + "]}}");
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(checkpoint.path());
  EXPECT_EQ(tokenizer.Encode("a").size(), 512u);
  EXPECT_NE(RefusalOf([&] { tokenizer.Encode(std::string(100'000, 'a')); }).find("normalised text"),
            std::string::npos);
}

TEST(TokenizerJson, TakesEndsOfGenerationFromTheFolder) {
  const Checkpoint checkpoint(
      "ends", R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2},"merges":[]}})");
  checkpoint.Write("tokenizer_config.json",
                   R"({"eos_token":{"content":"c"},"bos_token":"a","pad_token":null})");
  checkpoint.Write("generation_config.json", R"({"eos_token_id":[1,2]})");
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(checkpoint.path());
  EXPECT_EQ(tokenizer.special(Special::kBos), 0);
  EXPECT_EQ(tokenizer.special(Special::kEos), 2);
  EXPECT_TRUE(std::ranges::equal(tokenizer.end_of_generation(), Ids{1, 2}));
}

// Processor time, so that other work on the machine does not count. The bound is generous: a quadratic
// method would take hours on the longest text.
TEST(Hostile, AMegabyteOfAnythingTakesLinearTime) {
  std::mt19937 random(1);
  std::string noise;
  while (noise.size() < (1u << 20)) noise.push_back(static_cast<char>(random()));
  std::vector<std::string> texts = {noise};
  for (const char* part : {"a", "A", " ", "\n", " \n", "7", "\u0301", "\u0301\u0316", "a\u0301",
                           "漢", "!", "<", "<|", "'", "\u180E", "½", "Aa", "\t", "\uFFFD"}) {
    std::string& text = texts.emplace_back();
    while (text.size() < (1u << 20)) text += part;
  }
  std::vector<Tokenizer> tokenizers = {Tokenizer::FromVocab(SmallSentencePiece()),
                                       Tokenizer::FromVocab(SmallUnigram(true))};
  for (const char* pre :
       {"gpt-2", "llama-bpe", "qwen35", "gpt-4o", "deepseek-v3", "deepseek-llm", "jais-2",
        "kimi-k2", "superbpe", "tiny_aya", "exaone-moe", "afmoe", "bloom", "chameleon"}) {
    tokenizers.push_back(Tokenizer::FromVocab(SmallByteLevel(pre)));
  }
  for (size_t t = 0; t < tokenizers.size(); ++t) {
    for (std::string text : texts) {
      // A megabyte for one rule of each model; linear time shows in less for the others.
      if (t > 3) text.resize(1 << 17);
      const clock_t begin = clock();
      const Ids ids = tokenizers[t].Encode(text, {.parse_special = true});
      const double seconds = static_cast<double>(clock() - begin) / CLOCKS_PER_SEC;
      EXPECT_FALSE(ids.empty());
      EXPECT_LT(seconds, 20) << t << " " << Printable(text, 8);
    }
  }
}

}  // namespace
}  // namespace lockstep
