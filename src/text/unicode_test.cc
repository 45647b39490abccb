#include "text/unicode.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Unicode, ReplacesTheLongestIllFormedPrefixAsOneCharacter) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain é 🙂", "plain é 🙂"}, {"\x80", "\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},       {"\xE2\x96", "\uFFFD"},
      {"\xE2\x96\x41", "\uFFFDA"},        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x9F\xA6 x", "\uFFFD x"},     {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xFF\xFE", "\uFFFD\uFFFD"},       {std::string("a\0b", 3), std::string("a\0b", 3)},
  };
  for (const auto& [text, repaired] : cases) {
    EXPECT_EQ(ReplaceInvalidUtf8(text), repaired);
    EXPECT_EQ(IsUtf8(text), text == repaired);
    EXPECT_TRUE(IsUtf8(repaired));
  }
}

TEST(Unicode, KnowsHowManyBytesAtTheEndMayStillBecomeACharacter) {
  const std::pair<std::string, size_t> cases[] = {
      {"", 0},
      {"a", 0},
      {"é", 0},
      {"\xC3", 1},
      {"a\xE2", 1},
      {"\xE2\x96", 2},
      {"\xF0\x9F", 2},
      {"\xF0\x9F\xA6", 3},
      {"\xF0\x9F\xA6\x99", 0},
      {"\x80", 0},
      {"\xC3\x41", 0},
      {"\xED\xA0", 0},
      {"\xF5", 0},
      {"\xE0\x80", 0},
  };
  for (const auto& [text, tail] : cases) EXPECT_EQ(IncompleteUtf8Tail(text), tail) << text;
}

TEST(Unicode, SpellsEveryCodePointAsItReadsIt) {
  for (char32_t code = 0; code <= 0x10FFFF; code += code < 0x3000 ? 1 : 97) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(code, &text);
    const Utf8Char read = DecodeUtf8(text, 0);
    ASSERT_TRUE(read.valid) << uint32_t{code};
    ASSERT_EQ(read.code, code);
    ASSERT_EQ(read.bytes, text.size());
  }
}

TEST(Unicode, CountsTheMongolianVowelSeparatorAsNoSpace) {
  EXPECT_FALSE(IsWhitespace(0x180E));
  for (char32_t code : {U'\t', U' ', U'\x85', U'\xA0', U'\u2003', U'\u3000'}) {
    EXPECT_TRUE(IsWhitespace(code)) << uint32_t{code};
  }
}

TEST(Unicode, NormalisesToAllFourForms) {
  const std::string text = "e\u0301 \uFB01 \u00C5";
  EXPECT_EQ(Normalize(text, NormalForm::kNfc), "\u00E9 \uFB01 \u00C5");
  EXPECT_EQ(Normalize(text, NormalForm::kNfd), "e\u0301 \uFB01 A\u030A");
  EXPECT_EQ(Normalize(text, NormalForm::kNfkc), "\u00E9 fi \u00C5");
  EXPECT_EQ(Normalize(text, NormalForm::kNfkd), "e\u0301 fi A\u030A");
}

TEST(Unicode, OrdersALongRunOfMarksInLinearTime) {
  std::string marks;
  std::string above;
  std::string below;
  for (int i = 0; i < 200'000; ++i) {
    marks += "\u0301\u0316";
    above += "\u0301";
    below += "\u0316";
  }
  EXPECT_EQ(Normalize("x" + marks, NormalForm::kNfc), "x" + below + above);
}

TEST(Unicode, GivesEveryByteALetterOfItsOwn) {
  std::string all;
  std::string spelled;
  for (int b = 0; b < 256; ++b) {
    all.push_back(static_cast<char>(b));
    spelled += ByteAlphabet()[static_cast<size_t>(b)];
  }
  std::string bytes;
  ASSERT_TRUE(FromByteAlphabet(spelled, &bytes));
  EXPECT_EQ(bytes, all);
  EXPECT_EQ(ByteAlphabet()[' '], "Ġ");
  EXPECT_EQ(ByteAlphabet()['\n'], "Ċ");
  EXPECT_FALSE(FromByteAlphabet("a b", &bytes));
  EXPECT_FALSE(FromByteAlphabet("\u0144", &bytes));
}

}  // namespace
}  // namespace lockstep
