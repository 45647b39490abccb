// Unicode as tokenizers need it: UTF-8 in and out, categories, normal forms, and the byte alphabet
// of byte-level BPE.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr char32_t kReplacementChar = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";
// U+2581, which SentencePiece vocabularies write for a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

struct Utf8Char {
  char32_t code = kReplacementChar;
  uint32_t bytes = 1;  // taken from the text, at least 1
  bool valid = false;
};

// The character at `at` (< text.size()). An ill-formed sequence gives U+FFFD for its longest prefix
// that could still have become a character (the Unicode standard's "maximal subpart", which is also
// what Python's errors="replace" does).
Utf8Char DecodeUtf8(std::string_view text, size_t at);
void AppendUtf8(char32_t code, std::string* out);
std::u32string ToUtf32(std::string_view text);
std::string ToUtf8(std::u32string_view text);
size_t CountChars(std::string_view text);

// Whether the whole text is well-formed UTF-8.
bool IsUtf8(std::string_view text);
// The text with every ill-formed sequence replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);
// Bytes at the end of `text` that begin a character which more bytes could complete: 0 to 3.
size_t IncompleteUtf8Tail(std::string_view text);

// White_Space of the Unicode standard. U+180E is none since version 6.3.
bool IsWhitespace(char32_t code);
bool IsControl(char32_t code);  // Cc, Cf, Co, Cn but tab, line feed and carriage return
bool IsPunctuation(char32_t code);
bool IsMark(char32_t code);            // M
bool IsNonspacingMark(char32_t code);  // Mn
bool IsDigit(char32_t code);           // Nd
bool IsWordChar(char32_t code);        // L, M, N, Pc
bool IsCjkIdeograph(char32_t code);    // the ranges BERT spaces out
char32_t ToLower(char32_t code);       // simple mapping

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Normalises well-formed UTF-8.
std::string Normalize(std::string_view text, NormalForm form);

// GPT-2's byte alphabet: every byte as one printable character (188 bytes as themselves in Latin-1,
// the others from U+0100 up).
const std::array<std::string, 256>& ByteAlphabet();
// The bytes that `text` spells in the alphabet; false where a character is not of it.
bool FromByteAlphabet(std::string_view text, std::string* bytes);

}  // namespace lockstep
