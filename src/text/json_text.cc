#include "text/json_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

// The digits and the decimal exponent of a positive finite value: 0.d1d2d3... * 10^point.
struct Decimal {
  std::string digits;
  int point;
};

Decimal ShortestDecimal(double value) {
  char buffer[32];
  auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, result.ptr - buffer);
  size_t mark = text.find('e');
  Decimal decimal;
  for (char c : text.substr(0, mark)) {
    if (c != '.') decimal.digits += c;
  }
  int exponent = 0;
  size_t sign = text[mark + 1] == '+' ? 1 : 0;  // from_chars takes '-' but not '+'
  std::from_chars(text.data() + mark + 1 + sign, text.data() + text.size(), exponent);
  decimal.point = exponent + 1;
  return decimal;
}

// Whether Python's str.isprintable() holds.
bool IsPrintable(utf8proc_int32_t code_point) {
  if (code_point == ' ') return true;
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

// Calls `visit(code point, its bytes)` along UTF-8 text; a byte that is not UTF-8 is passed as it
// is.
template <typename Visit>
void EachCodePoint(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    utf8proc_int32_t code_point = 0;
    utf8proc_ssize_t size =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()), &code_point);
    if (size <= 0) {
      code_point = static_cast<unsigned char>(text[0]);
      size = 1;
    }
    visit(static_cast<uint32_t>(code_point), text.substr(0, size));
    text.remove_prefix(size);
  }
}

void AppendUtf16Escapes(std::string& out, uint32_t code_point) {
  if (code_point < 0x10000) {
    out += fmt::format("\\u{:04x}", code_point);
    return;
  }
  uint32_t rest = code_point - 0x10000;
  out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

// The two-character escape of JSON and Python for a control character, or '\0'.
char ShortEscape(uint32_t code_point) {
  switch (code_point) {
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    default:
      return '\0';
  }
}

void Write(JsonWriter& writer, const boost::json::value& value, bool sort_keys);

void WriteObject(JsonWriter& writer, const boost::json::object& object, bool sort_keys) {
  std::vector<const boost::json::key_value_pair*> members;
  for (const auto& member : object) members.push_back(&member);
  if (sort_keys) {
    std::stable_sort(members.begin(), members.end(),
                     [](const auto* a, const auto* b) { return a->key() < b->key(); });
  }
  writer.Begin('{');
  for (const auto* member : members) {
    writer.Key(member->key());
    Write(writer, member->value(), sort_keys);
  }
  writer.End('}');
}

void Write(JsonWriter& writer, const boost::json::value& value, bool sort_keys) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return writer.Literal("null");
    case boost::json::kind::bool_:
      return writer.Literal(value.get_bool() ? "true" : "false");
    case boost::json::kind::int64:
      return writer.Literal(std::to_string(value.get_int64()));
    case boost::json::kind::uint64:
      return writer.Literal(std::to_string(value.get_uint64()));
    case boost::json::kind::double_:
      return writer.Float(value.get_double());
    case boost::json::kind::string:
      return writer.String(value.get_string());
    case boost::json::kind::array:
      writer.Begin('[');
      for (const auto& item : value.get_array()) Write(writer, item, sort_keys);
      return writer.End(']');
    case boost::json::kind::object:
      return WriteObject(writer, value.get_object(), sort_keys);
  }
}

}  // namespace

std::string PythonFloat(double value) {
  if (std::isnan(value)) return "nan";
  std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + "inf";
  if (value == 0) return sign + "0.0";
  auto [digits, point] = ShortestDecimal(std::fabs(value));
  int count = static_cast<int>(digits.size());
  // Python changes to an exponent below 1e-4 and from 1e16 on.
  if (point <= -4 || point > 16) {
    std::string mantissa = digits.substr(0, 1);
    if (count > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, point > 0 ? '+' : '-', std::abs(point - 1));
  }
  if (point <= 0) return sign + "0." + std::string(-point, '0') + digits;
  if (point >= count) return sign + digits + std::string(point - count, '0') + ".0";
  return sign + digits.substr(0, point) + "." + digits.substr(point);
}

std::string PythonQuoted(std::string_view text) {
  bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  EachCodePoint(text, [&](uint32_t code_point, std::string_view bytes) {
    char letter = ShortEscape(code_point);
    if (letter == 'b' || letter == 'f') letter = '\0';  // Python's repr has no short form for these
    if (code_point == '\\' || code_point == static_cast<uint32_t>(quote)) {
      out += '\\';
      out += bytes;
    } else if (letter != '\0') {
      out += '\\';
      out += letter;
    } else if (IsPrintable(static_cast<utf8proc_int32_t>(code_point))) {
      out += bytes;
    } else if (code_point < 0x100) {
      out += fmt::format("\\x{:02x}", code_point);
    } else if (code_point < 0x10000) {
      out += fmt::format("\\u{:04x}", code_point);
    } else {
      out += fmt::format("\\U{:08x}", code_point);
    }
  });
  return out + quote;
}

void AppendJsonString(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  EachCodePoint(text, [&](uint32_t code_point, std::string_view bytes) {
    if (code_point == '"' || code_point == '\\') {
      out += '\\';
      out += bytes;
    } else if (char letter = ShortEscape(code_point); letter != '\0') {
      out += '\\';
      out += letter;
    } else if (code_point < 0x20 || (ascii && code_point > 0x7E)) {
      AppendUtf16Escapes(out, code_point);
    } else {
      out += bytes;
    }
  });
  out += '"';
}

void JsonWriter::NewLine() {
  if (!style_.indent) return;
  out_ += '\n';
  for (size_t i = 0; i < level_; ++i) out_ += *style_.indent;
}

void JsonWriter::Item() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (level_ == 0) return;
  if (!first_) out_ += style_.item_separator;
  first_ = false;
  NewLine();
}

void JsonWriter::Begin(char bracket) {
  Item();
  out_ += bracket;
  ++level_;
  first_ = true;
}

void JsonWriter::End(char bracket) {
  --level_;
  if (!first_) NewLine();
  first_ = false;
  out_ += bracket;
}

void JsonWriter::Key(std::string_view key) {
  Item();
  AppendJsonString(out_, key, style_.ascii);
  out_ += style_.key_separator;
  after_key_ = true;
}

void JsonWriter::String(std::string_view text) {
  Item();
  AppendJsonString(out_, text, style_.ascii);
}

void JsonWriter::Float(double value) {
  Item();
  if (std::isnan(value)) {
    out_ += "NaN";
  } else if (std::isinf(value)) {
    out_ += value > 0 ? "Infinity" : "-Infinity";
  } else {
    out_ += PythonFloat(value);
  }
}

void JsonWriter::Literal(std::string_view text) {
  Item();
  out_ += text;
}

std::string JsonText(const boost::json::value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter writer(out, style);
  Write(writer, value, style.sort_keys);
  return out;
}

boost::json::value ParseJson(std::string_view who, std::string_view text, size_t max_depth) {
  boost::json::parse_options options;
  options.max_depth = max_depth;
  boost::json::stream_parser parser({}, options);
  boost::json::error_code error;
  size_t read = parser.write_some(text.data(), text.size(), error);
  if (!error && read < text.size()) error = boost::json::error::extra_data;
  if (!error) parser.finish(error);
  if (error) {
    throw Refused("{}: byte {}: expected JSON, found {}", Printable(who), read, error.message());
  }
  return parser.release();
}

}  // namespace lockstep
