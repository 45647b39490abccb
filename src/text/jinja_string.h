// Python's str methods on UTF-8 text. Positions and lengths are in code points where the name says
// so, else in bytes. Texts are valid UTF-8 and so are the results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

// Bytes of the first code point; text is not empty.
size_t CodePointBytes(std::string_view text);
size_t CountCodePoints(std::string_view text);
uint32_t FirstCodePoint(std::string_view text);
void AppendCodePoint(std::string& out, uint32_t code_point);
// Byte offset of code point `index`; the size of the text where it has fewer.
size_t OffsetOf(std::string_view text, size_t index);

// The place of `needle` from byte `from` on, std::string::npos where there is none. Linear in both
// sizes.
size_t Find(std::string_view text, std::string_view needle, size_t from);

bool IsSpace(uint32_t code_point);  // Python's str.isspace()
bool IsAlpha(uint32_t code_point);
bool IsDigit(uint32_t code_point);  // decimal digits
bool IsUpper(uint32_t code_point);
bool IsLower(uint32_t code_point);

enum class Side { kLeft, kRight, kBoth };
// Without blanks, or without the code points of `chars`, at the ends.
std::string_view Strip(std::string_view text, Side side);
std::string_view StripChars(std::string_view text, std::string_view chars, Side side);

// `max_splits` < 0 means all. SplitBlanks drops empty parts; `separator` is not empty.
std::vector<std::string_view> SplitBlanks(std::string_view text, int64_t max_splits);
std::vector<std::string_view> SplitBlanksFromRight(std::string_view text, int64_t max_splits);
std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    int64_t max_splits);
std::vector<std::string_view> SplitFromRight(std::string_view text, std::string_view separator,
                                             int64_t max_splits);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// Every occurrence, or the first `count` where it is not negative; an empty `old` matches between
// code points.
std::string Replace(std::string_view text, std::string_view old, std::string_view with,
                    int64_t count);
size_t CountOf(std::string_view text, std::string_view needle);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string Title(
    std::string_view text);  // str.title(): a word starts after anything that has no case
std::string SwapCase(std::string_view text);

// Filled up to `width` code points with `fill` on the other side(s).
std::string Justify(std::string_view text, int64_t width, std::string_view fill, Side keep);

// & < > ' " as HTML writes them.
std::string EscapeHtml(std::string_view text);

}  // namespace lockstep::jinja
