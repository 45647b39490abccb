#include "text/jinja_string.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace lockstep::jinja {
namespace {

// Upper case of the letters whose full mapping is more than one code point (Unicode
// SpecialCasing.txt, unconditional).
struct SpecialUpper {
  uint32_t code_point;
  std::string_view upper;
};
constexpr SpecialUpper kSpecialUpper[] = {
    {0x00DF, "SS"},      {0x0149, "\u02BCN"}, {0x01F0, "J\u030C"}, {0x0587, "\u0535\u0552"},
    {0x1E96, "H\u0331"}, {0x1E97, "T\u0308"}, {0x1E98, "W\u030A"}, {0x1E99, "Y\u030A"},
    {0x1E9A, "A\u02BE"}, {0xFB00, "FF"},      {0xFB01, "FI"},      {0xFB02, "FL"},
    {0xFB03, "FFI"},     {0xFB04, "FFL"},     {0xFB05, "ST"},      {0xFB06, "ST"},
};

void AppendUpper(std::string& out, uint32_t code_point) {
  for (const SpecialUpper& row : kSpecialUpper) {
    if (row.code_point == code_point) {
      out += row.upper;
      return;
    }
  }
  AppendCodePoint(out, utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point)));
}

void AppendLower(std::string& out, uint32_t code_point) {
  if (code_point == 0x130) {
    out += "i\u0307";  // the only letter whose lower case is two code points
    return;
  }
  AppendCodePoint(out, utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

template <typename Visit>
void EachCodePoint(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    visit(FirstCodePoint(text));
    text.remove_prefix(CodePointBytes(text));
  }
}

size_t LastCodePointBytes(std::string_view text) {
  size_t size = 1;
  while (size < text.size() && (text[text.size() - size] & 0xC0) == 0x80) ++size;
  return size;
}

template <typename Drop>
std::string_view StripIf(std::string_view text, Side side, Drop&& drop) {
  if (side != Side::kRight) {
    while (!text.empty() && drop(text.substr(0, CodePointBytes(text)))) {
      text.remove_prefix(CodePointBytes(text));
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      size_t size = LastCodePointBytes(text);
      if (!drop(text.substr(text.size() - size))) break;
      text.remove_suffix(size);
    }
  }
  return text;
}

// What str.splitlines() takes for a line end.
bool IsLineEnd(uint32_t code_point) {
  switch (code_point) {
    case 0x0A:
    case 0x0B:
    case 0x0C:
    case 0x0D:
    case 0x1C:
    case 0x1D:
    case 0x1E:
    case 0x85:
    case 0x2028:
    case 0x2029:
      return true;
    default:
      return false;
  }
}

}  // namespace

size_t CodePointBytes(std::string_view text) {
  unsigned char lead = static_cast<unsigned char>(text[0]);
  size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(size, text.size());
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

uint32_t FirstCodePoint(std::string_view text) {
  utf8proc_int32_t code_point = 0;
  utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                           static_cast<utf8proc_ssize_t>(text.size()), &code_point);
  return size > 0 ? static_cast<uint32_t>(code_point) : static_cast<unsigned char>(text[0]);
}

void AppendCodePoint(std::string& out, uint32_t code_point) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t OffsetOf(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += CodePointBytes(text.substr(at));
  return at;
}

size_t Find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string::npos;
  if (needle.empty()) return from;
  // glibc's memmem is linear in the worst case; std::string_view::find is not.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool IsSpace(uint32_t code_point) {
  if (code_point < 0x80) {
    return code_point == ' ' || (code_point >= 0x09 && code_point <= 0x0D) ||
           (code_point >= 0x1C && code_point <= 0x1F);
  }
  if (code_point == 0x85) return true;
  utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool IsAlpha(uint32_t code_point) {
  utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) == UTF8PROC_CATEGORY_ND;
}

bool IsUpper(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) == UTF8PROC_CATEGORY_LU;
}

bool IsLower(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point)) == UTF8PROC_CATEGORY_LL;
}

std::string_view Strip(std::string_view text, Side side) {
  return StripIf(text, side, [](std::string_view c) { return IsSpace(FirstCodePoint(c)); });
}

std::string_view StripChars(std::string_view text, std::string_view chars, Side side) {
  return StripIf(text, side,
                 [&](std::string_view c) { return chars.find(c) != std::string_view::npos; });
}

std::vector<std::string_view> SplitBlanks(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = Strip(text, Side::kLeft);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !IsSpace(FirstCodePoint(text.substr(end)))) {
      end += CodePointBytes(text.substr(end));
    }
    parts.push_back(text.substr(0, end));
    text = Strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string_view> SplitBlanksFromRight(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = Strip(text, Side::kRight);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t size = LastCodePointBytes(text.substr(0, begin));
      if (IsSpace(FirstCodePoint(text.substr(begin - size)))) break;
      begin -= size;
    }
    parts.push_back(text.substr(begin));
    text = Strip(text.substr(0, begin), Side::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    int64_t max_splits) {
  std::vector<std::string_view> parts;
  size_t from = 0;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    size_t at = Find(text, separator, from);
    if (at == std::string::npos) break;
    parts.push_back(text.substr(from, at - from));
    from = at + separator.size();
  }
  parts.push_back(text.substr(from));
  return parts;
}

std::vector<std::string_view> SplitFromRight(std::string_view text, std::string_view separator,
                                             int64_t max_splits) {
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t size = CodePointBytes(text.substr(at));
    if (!IsLineEnd(FirstCodePoint(text.substr(at)))) {
      at += size;
      continue;
    }
    size_t end = at;
    at += text.substr(at, 2) == "\r\n" ? 2 : size;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string Replace(std::string_view text, std::string_view old, std::string_view with,
                    int64_t count) {
  std::string out;
  size_t from = 0;
  while (count != 0) {
    size_t at = Find(text, old, from);
    if (at == std::string::npos) break;
    out += text.substr(from, at - from);
    out += with;
    --count;
    from = at + old.size();
    if (!old.empty()) continue;
    if (from == text.size()) return out;
    size_t size = CodePointBytes(text.substr(from));
    out += text.substr(from, size);
    from += size;
  }
  return out += text.substr(from);
}

size_t CountOf(std::string_view text, std::string_view needle) {
  if (needle.empty()) return CountCodePoints(text) + 1;
  size_t count = 0;
  for (size_t at = 0; (at = Find(text, needle, at)) != std::string::npos; at += needle.size())
    ++count;
  return count;
}

std::string Upper(std::string_view text) {
  std::string out;
  EachCodePoint(text, [&](uint32_t c) { AppendUpper(out, c); });
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  EachCodePoint(text, [&](uint32_t c) { AppendLower(out, c); });
  return out;
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return "";
  size_t first = CodePointBytes(text);
  std::string out;
  AppendCodePoint(out, utf8proc_totitle(static_cast<utf8proc_int32_t>(FirstCodePoint(text))));
  return out + Lower(text.substr(first));
}

std::string Title(std::string_view text) {
  std::string out;
  bool inside = false;
  EachCodePoint(text, [&](uint32_t c) {
    if (inside) {
      AppendLower(out, c);
    } else {
      AppendCodePoint(out, utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
    }
    inside = IsUpper(c) || IsLower(c);
  });
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  EachCodePoint(text, [&](uint32_t c) { IsUpper(c) ? AppendLower(out, c) : AppendUpper(out, c); });
  return out;
}

std::string Justify(std::string_view text, int64_t width, std::string_view fill, Side keep) {
  int64_t missing = width - static_cast<int64_t>(CountCodePoints(text));
  if (missing <= 0) return std::string(text);
  // str.center() puts the odd blank left where the width is odd.
  int64_t left = keep == Side::kLeft    ? 0
                 : keep == Side::kRight ? missing
                                        : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace lockstep::jinja
