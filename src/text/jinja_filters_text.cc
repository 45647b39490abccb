// Filters that make text or numbers (Jinja 3.1 documentation, "List of Builtin Filters"; tojson as
// transformers sets it).
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

// Jinja's soft_str followed by a change of the text.
template <std::string (*kChange)(std::string_view)>
Value ChangeFilter(Call& call) {
  std::string text = kChange(call.self.Str());
  return call.self.IsMarkup() ? Value::Markup(std::move(text)) : Value(std::move(text));
}

// Jinja's title filter: words start at blanks, brackets and hyphens.
std::string TitleWords(std::string_view text) {
  std::string out;
  bool inside = false;
  for (; !text.empty(); text.remove_prefix(CodePointBytes(text))) {
    std::string_view c = text.substr(0, CodePointBytes(text));
    bool between =
        IsSpace(FirstCodePoint(c)) || std::string_view("-({[<").find(c) != std::string_view::npos;
    out += inside ? Lower(c) : Upper(c);
    inside = !between;
  }
  return out;
}

Value TrimFilter(Call& call) {
  std::string text = call.self.Str();
  return call.Given(0) ? StripChars(text, call.Text(0), Side::kBoth) : Strip(text, Side::kBoth);
}

Value StringFilter(Call& call) { return call.self.IsString() ? call.self : Value(call.self.Str()); }

Value SafeFilter(Call& call) { return Value::Markup(call.self.Str()); }

Value EscapeFilter(Call& call) {
  return call.self.IsMarkup() ? call.self : Value::Markup(EscapeHtml(call.self.Str()));
}

Value ForceEscapeFilter(Call& call) { return Value::Markup(EscapeHtml(call.self.Str())); }

Value ReplaceFilter(Call& call) {
  std::string text = call.self.Str();
  std::string old = call.At(0).Str();
  std::string with = call.At(1).Str();
  uint64_t growth = 0;
  if (__builtin_mul_overflow(CountOf(text, old), with.size(), &growth)) growth = UINT64_MAX / 2;
  Budget::Spend(text.size() / 64);
  Budget::CheckBytes(text.size() + growth);
  return Replace(text, old, with, call.Given(2) ? call.Integer(2, -1) : -1);
}

Value CenterFilter(Call& call) {
  int64_t width = call.Integer(0, 80);
  if (width > 0) Budget::CheckBytes(static_cast<uint64_t>(width));
  return Justify(call.self.Str(), width, " ", Side::kBoth);
}

Value IndentFilter(Call& call) {
  if (!call.self.IsString()) {
    if (call.self.IsUndefined()) throw Fault(call.self.undefined_message());
    throw Fault(fmt::format("indent wants a string, found {}", call.self.type_name()));
  }
  std::string indent;
  if (call.Has(0) && call.At(0).IsString()) {
    indent = call.At(0).text();
  } else {
    int64_t width = std::max<int64_t>(0, call.Integer(0, 4));
    Budget::CheckBytes(static_cast<uint64_t>(width));
    indent.assign(static_cast<size_t>(width), ' ');
  }
  bool first = call.Flag(1);
  bool blank = call.Flag(2);
  std::string text = call.self.text() + "\n";
  std::string out;
  bool first_line = true;
  for (std::string_view line : SplitLines(text, false)) {
    if (!first_line) out += '\n';
    if (first_line ? first : blank || !line.empty()) out += indent;
    first_line = false;
    out += line;
    Budget::CheckBytes(out.size());
  }
  return out;
}

Value TruncateFilter(Call& call) {
  std::string text = call.self.Str();
  int64_t length = call.Integer(0, 255);
  std::string end = call.Given(2) ? call.Text(2) : "...";
  int64_t leeway = call.Given(3) ? call.Integer(3, 5) : 5;
  int64_t end_size = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_size)
    throw Fault(fmt::format("expected length >= {}, got {}", end_size, length));
  if (leeway < 0) throw Fault(fmt::format("expected leeway >= 0, got {}", leeway));
  int64_t size = static_cast<int64_t>(CountCodePoints(text));
  if (size <= length || size - length <= leeway) return text;
  std::string kept = text.substr(0, OffsetOf(text, static_cast<size_t>(length - end_size)));
  if (!call.Flag(1)) kept = kept.substr(0, kept.rfind(' '));
  return kept + end;
}

Value WordCountFilter(Call& call) {
  std::string text = call.self.Str();
  int64_t words = 0;
  bool inside = false;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(CodePointBytes(rest))) {
    uint32_t c = FirstCodePoint(rest);
    bool letter = c == '_' || IsAlpha(c) || IsDigit(c);
    words += letter && !inside;
    inside = letter;
  }
  return words;
}

std::string PercentEncode(std::string_view text, bool keep_slash) {
  std::string out;
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 std::string_view("_.-~").find(c) != std::string_view::npos ||
                 (keep_slash && c == '/');
    if (plain) {
      out += c;
    } else if (c == ' ' && !keep_slash) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value UrlEncodeFilter(Call& call) {
  if (call.self.IsString() || !IsIterable(call.self)) return PercentEncode(call.self.Str(), true);
  std::string out;
  auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += PercentEncode(key.Str(), false) + "=" + PercentEncode(value.Str(), false);
    Budget::CheckBytes(out.size());
  };
  if (call.self.IsDict()) {
    for (const auto& [key, value] : call.self.dict().items) add(key, value);
    return out;
  }
  for (const Value& item : Items(call.self)) {
    std::vector<Value> pair = Items(item);
    if (pair.size() != 2) throw Fault("urlencode wants pairs");
    add(pair[0], pair[1]);
  }
  return out;
}

Value FormatFilter(Call& call) {
  if (!call.all.named.empty() && !call.all.positional.empty()) {
    throw Fault("can't handle positional and keyword arguments at the same time");
  }
  if (call.all.named.empty())
    return PercentFormat(Value(call.self.Str()), Value::Tuple(call.all.positional));
  std::vector<std::pair<Value, Value>> named;
  for (const auto& [name, value] : call.all.named) named.emplace_back(name, value);
  return PercentFormat(Value(call.self.Str()), Value::MakeDict(std::move(named)));
}

// ---- JSON

Value ToJsonFilter(Call& call) {
  JsonStyle style;
  style.ascii = call.Flag(0);
  style.sort_keys = call.Flag(3);
  if (call.Given(1)) {
    style.item_separator = ",";
    if (call.At(1).IsString()) {
      style.indent = call.At(1).text();
    } else {
      int64_t width = std::max<int64_t>(0, call.Integer(1, 0));
      Budget::CheckBytes(static_cast<uint64_t>(width));
      style.indent.emplace(static_cast<size_t>(width), ' ');
    }
  }
  if (call.Given(2)) {
    std::vector<Value> separators = Items(call.At(2));
    if (separators.size() != 2 || !separators[0].IsString() || !separators[1].IsString()) {
      throw Fault("separators wants two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return ToJson(call.self, style);
}

Value FromJsonFilter(Call& call) {
  if (!call.self.IsString())
    throw Fault(fmt::format("from_json wants a string, found {}", call.self.type_name()));
  try {
    return Value::FromJson(ParseJson("from_json", call.self.text()));
  } catch (const Error& error) {
    throw Fault(error.what());
  }
}

// ---- numbers

// A number as Python's float() reads it; nullopt where the text is none.
std::optional<double> ParseFloat(std::string_view text) {
  std::string digits(Strip(text, Side::kBoth));
  std::erase(digits, '_');
  if (digits.empty() || digits.find_first_of("xX\n") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size() || digits.back() == ')') return std::nullopt;
  return value;
}

// An integer as Python's int(text, base) reads it, a prefix of the base allowed.
std::optional<Int> ParseInt(std::string_view text, int64_t base) {
  text = Strip(text, Side::kBoth);
  bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  int prefixed = 10;
  if (text.size() > 2 && text[0] == '0') {
    char letter = static_cast<char>(text[1] | 0x20);
    prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  }
  if (prefixed != 10 && (base == prefixed || base == 0)) text.remove_prefix(2);
  if (base == 0) base = prefixed;
  if (text.empty()) return std::nullopt;
  Int value = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = static_cast<char>(text[i] | 0x20);
    if (text[i] == '_' && i > 0 && text[i - 1] != '_' && i + 1 < text.size()) continue;
    int digit = text[i] >= '0' && text[i] <= '9' ? text[i] - '0'
                : c >= 'a' && c <= 'z'           ? c - 'a' + 10
                                                 : 99;
    if (digit >= base) return std::nullopt;
    value = Checked(__builtin_mul_overflow(value, Int{base}, &value), value);
    value = Checked(__builtin_add_overflow(value, Int{digit}, &value), value);
  }
  return negative ? -value : value;
}

// The integer part; nullopt where it is none or does not fit.
std::optional<Int> Truncated(double value) {
  if (!std::isfinite(value) || std::fabs(value) >= 1e38) return std::nullopt;
  return static_cast<Int>(value);
}

Value IntFilter(Call& call) {
  const Value& value = call.self;
  if (value.IsUndefined()) throw Fault(value.undefined_message());
  if (value.IsInt() || value.IsBool()) return value.integer();
  std::optional<Int> whole;
  if (value.IsFloat()) whole = Truncated(value.number());
  if (value.IsString()) {
    int64_t base = call.Integer(1, 10);
    if (base != 0 && (base < 2 || base > 36))
      throw Fault("int() base must be >= 2 and <= 36, or 0");
    whole = ParseInt(value.text(), base);
    if (!whole) {
      if (auto number = ParseFloat(value.text())) whole = Truncated(*number);
    }
  }
  return whole ? Value(*whole) : call.Or(0, Value(0));
}

Value FloatFilter(Call& call) {
  const Value& value = call.self;
  if (value.IsUndefined()) throw Fault(value.undefined_message());
  if (value.IsNumber()) return value.number();
  std::optional<double> number;
  if (value.IsString()) number = ParseFloat(value.text());
  return number ? Value(*number) : call.Or(0, Value(0.0));
}

Value AbsFilter(Call& call) {
  if (call.self.IsFloat()) return std::fabs(call.self.number());
  Value negated = Negate(call.self);
  return call.self.integer() < 0 ? negated : Value(call.self.integer());
}

Value RoundFilter(Call& call) {
  int64_t precision = std::clamp<int64_t>(call.Integer(0, 0), -300, 300);
  std::string method = call.Has(1) ? call.Text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    throw Fault("method must be common, ceil or floor");
  }
  if (call.self.IsUndefined()) throw Fault(call.self.undefined_message());
  if (!call.self.IsNumber())
    throw Fault(fmt::format("round wants a number, found {}", call.self.type_name()));
  double value = call.self.number();
  double scale = std::pow(10.0, static_cast<double>(precision));
  if (!std::isfinite(value)) return value;
  if (method != "common") {
    double scaled = value * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
  }
  if (!call.self.IsFloat() && precision >= 0) return call.self.integer();
  // The decimal text rounds the exact binary value, ties to even, as Python does.
  if (precision >= 0)
    return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(precision)).c_str(), nullptr);
  double rounded = std::nearbyint(value * scale) / scale;
  return call.self.IsFloat() ? Value(rounded) : Value(static_cast<Int>(rounded));
}

Value FileSizeFilter(Call& call) {
  double bytes =
      call.self.IsNumber() ? call.self.number() : ParseFloat(call.self.Str()).value_or(0);
  bool binary = call.Flag(0);
  double base = binary ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (!(bytes >= base)) return fmt::format("{} Bytes", IntText(Truncated(bytes).value_or(0)));
  double unit = base;
  size_t prefix = 0;
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  while (prefix + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++prefix;
  }
  char letter = binary && prefix == 0 ? 'K' : kPrefixes[prefix];
  return fmt::format("{:.1f} {}{}", bytes / unit, letter, binary ? "iB" : "B");
}

constexpr Builtin kTextFilters[] = {
    {"abs", "", 0, AbsFilter},
    {"capitalize", "", 0, ChangeFilter<Capitalize>},
    {"center", "width", 0, CenterFilter},
    {"e", "", 0, EscapeFilter},
    {"escape", "", 0, EscapeFilter},
    {"filesizeformat", "binary", 0, FileSizeFilter},
    {"float", "default", 0, FloatFilter},
    {"forceescape", "", 0, ForceEscapeFilter},
    {"format", "*", 0, FormatFilter},
    {"from_json", "", 0, FromJsonFilter},
    {"indent", "width,first,blank", 0, IndentFilter},
    {"int", "default,base", 0, IntFilter},
    {"lower", "", 0, ChangeFilter<Lower>},
    {"replace", "old,new,count", 2, ReplaceFilter},
    {"round", "precision,method", 0, RoundFilter},
    {"safe", "", 0, SafeFilter},
    {"string", "", 0, StringFilter},
    {"title", "", 0, ChangeFilter<TitleWords>},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, ToJsonFilter},
    {"trim", "chars", 0, TrimFilter},
    {"truncate", "length,killwords,end,leeway", 0, TruncateFilter},
    {"upper", "", 0, ChangeFilter<Upper>},
    {"urlencode", "", 0, UrlEncodeFilter},
    {"wordcount", "", 0, WordCountFilter},
};

}  // namespace

std::span<const Builtin> TextFilters() { return kTextFilters; }

}  // namespace lockstep::jinja
