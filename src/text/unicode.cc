#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

// How a lead byte continues: total length, and the range that the second byte must lie in (Unicode
// standard, table 3-7).
struct Lead {
  uint32_t bytes;
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

utf8proc_category_t CategoryOf(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

struct Range {
  char32_t first;
  char32_t last;
};

template <size_t n>
bool InRanges(const Range (&ranges)[n], char32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [code](Range r) { return r.first <= code && code <= r.last; });
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const Lead lead = LeadOf(byte(0));
  if (lead.bytes == 0) return {};
  if (lead.bytes == 1) return {byte(0), 1, true};
  char32_t code = byte(0) & (0x7F >> lead.bytes);
  for (uint32_t i = 1; i < lead.bytes; ++i) {
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (at + i >= text.size() || byte(i) < low || byte(i) > high)
      return {kReplacementChar, i, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, lead.bytes, true};
}

void AppendUtf8(char32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  const int rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  out->push_back(static_cast<char>((0xFF00 >> (rest + 1) & 0xFF) | code >> 6 * rest));
  for (int i = rest - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80 | (code >> 6 * i & 0x3F)));
  }
}

std::u32string ToUtf32(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    out.push_back(c.code);
    at += c.bytes;
  }
  return out;
}

std::string ToUtf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char32_t code : text) AppendUtf8(code, &out);
  return out;
}

size_t CountChars(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += DecodeUtf8(text, at).bytes) ++count;
  return count;
}

bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!c.valid) return false;
    at += c.bytes;
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    out += c.valid ? text.substr(at, c.bytes) : kReplacementUtf8;
    at += c.bytes;
  }
  return out;
}

size_t IncompleteUtf8Tail(std::string_view text) {
  const size_t longest = std::min<size_t>(3, text.size());
  for (size_t tail = 1; tail <= longest; ++tail) {
    const size_t at = text.size() - tail;
    const Lead lead = LeadOf(static_cast<uint8_t>(text[at]));
    if (lead.bytes <= 1) continue;
    const Utf8Char c = DecodeUtf8(text, at);
    return !c.valid && c.bytes == tail ? tail : 0;
  }
  return 0;
}

bool IsWhitespace(char32_t code) {
  static constexpr Range kSpaces[] = {
      {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
  return InRanges(kSpaces, code);
}

bool IsControl(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const utf8proc_category_t category = CategoryOf(code);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CN;
}

bool IsPunctuation(char32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsMark(char32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsNonspacingMark(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_MN; }

bool IsDigit(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_ND; }

bool IsWordChar(char32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_PC;
}

bool IsCjkIdeograph(char32_t code) {
  // The seventh range starts at 2B920 in the reference implementation, so it does here.
  static constexpr Range kIdeographs[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return InRanges(kIdeographs, code);
}

char32_t ToLower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

namespace {

// The characters that `code` decomposes to, in full.
void AppendDecomposed(char32_t code, utf8proc_option_t options,
                      std::vector<utf8proc_int32_t>* out) {
  utf8proc_int32_t parts[64];  // the longest decomposition in Unicode has 18
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 64, options, &boundary);
  if (count < 0 || count > 64) {
    out->push_back(static_cast<utf8proc_int32_t>(code));
  } else {
    out->insert(out->end(), parts, parts + count);
  }
}

int CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Canonical ordering: each run of combining characters by class. The library's own sort takes
// quadratic time on a long run, which a text of marks alone would use.
void OrderMarks(std::vector<utf8proc_int32_t>* codes) {
  for (auto begin = codes->begin(); begin != codes->end();) {
    begin = std::find_if(begin, codes->end(), [](auto c) { return CombiningClass(c) != 0; });
    const auto end =
        std::find_if(begin, codes->end(), [](auto c) { return CombiningClass(c) == 0; });
    if (end - begin > 1) {
      std::stable_sort(begin, end,
                       [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    }
    begin = end;
  }
}

}  // namespace

std::string Normalize(std::string_view text, NormalForm form) {
  // ASCII is its own normal form in all four, and the usual case.
  if (std::all_of(text.begin(), text.end(),
                  [](char c) { return static_cast<uint8_t>(c) < 0x80; })) {
    return std::string(text);
  }
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto decompose_options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    AppendDecomposed(c.code, decompose_options, &codes);
    at += c.bytes;
  }
  OrderMarks(&codes);
  if (compose) {
    const utf8proc_ssize_t size = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (size >= 0) codes.resize(static_cast<size_t>(size));
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_int32_t code : codes) AppendUtf8(static_cast<char32_t>(code), &out);
  return out;
}

namespace {

bool IsOwnByteLetter(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::array<char32_t, 256> ByteCodes() {
  std::array<char32_t, 256> codes;
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    codes[static_cast<size_t>(b)] = IsOwnByteLetter(b) ? static_cast<char32_t>(b) : next++;
  }
  return codes;
}

}  // namespace

const std::array<std::string, 256>& ByteAlphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> letters;
    const std::array<char32_t, 256> codes = ByteCodes();
    for (size_t b = 0; b < 256; ++b) AppendUtf8(codes[b], &letters[b]);
    return letters;
  }();
  return alphabet;
}

bool FromByteAlphabet(std::string_view text, std::string* bytes) {
  static const std::array<int16_t, 0x144> byte_of = [] {
    std::array<int16_t, 0x144> table;
    table.fill(-1);
    const std::array<char32_t, 256> codes = ByteCodes();
    for (size_t b = 0; b < 256; ++b) table[codes[b]] = static_cast<int16_t>(b);
    return table;
  }();
  bytes->clear();
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!c.valid || c.code >= byte_of.size() || byte_of[c.code] < 0) return false;
    bytes->push_back(static_cast<char>(byte_of[c.code]));
    at += c.bytes;
  }
  return true;
}

}  // namespace lockstep
