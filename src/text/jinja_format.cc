#include "text/jinja_format.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/jinja_operators.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;   // padding of one value
constexpr int64_t kMaxPrecision = 100;  // digits behind the point

// How one value is laid out: what stands between % and the letter, or behind the colon of a field.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<' '>' '^' '=', '\0' for the type's own
  char sign = '-';
  bool alternate = false;
  bool grouping = false;
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

int64_t ReadNumber(std::string_view& rest, int64_t limit) {
  int64_t value = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    value = value * 10 + (rest[0] - '0');
    if (value > limit) throw Fault(fmt::format("a format asks for more than {} characters", limit));
    rest.remove_prefix(1);
  }
  return value;
}

bool Take(std::string_view& rest, char c) {
  if (rest.empty() || rest[0] != c) return false;
  rest.remove_prefix(1);
  return true;
}

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

std::string Group(const std::string& digits) {
  size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string Pad(const Spec& spec, const std::string& sign, const std::string& body,
                char default_align) {
  char align = spec.align == '\0' ? default_align : spec.align;
  if (align == '=') {
    int64_t room = spec.width - static_cast<int64_t>(sign.size());
    return sign + Justify(body, room, spec.fill, Side::kRight);
  }
  Side keep = align == '<' ? Side::kLeft : align == '>' ? Side::kRight : Side::kBoth;
  return Justify(sign + body, spec.width, spec.fill, keep);
}

std::string SignText(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string FormatInt(const Spec& spec, Int value) {
  bool negative = value < 0;
  std::string digits;
  unsigned __int128 rest =
      negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  unsigned base = spec.type == 'x' || spec.type == 'X' ? 16
                  : spec.type == 'o'                   ? 8
                  : spec.type == 'b'                   ? 2
                                                       : 10;
  do {
    digits += "0123456789abcdef"[static_cast<unsigned>(rest % base)];
    rest /= base;
  } while (rest != 0);
  std::reverse(digits.begin(), digits.end());
  int64_t wanted = spec.precision.value_or(0);
  if (static_cast<int64_t>(digits.size()) < wanted) digits.insert(0, wanted - digits.size(), '0');
  if (spec.grouping) digits = Group(digits);
  std::string prefix = spec.alternate && base != 10 ? std::string("0") + spec.type : "";
  if (spec.type == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
  return Pad(spec, SignText(spec, negative) + prefix, digits, '>');
}

std::string FormatFloat(const Spec& spec, double value) {
  double size = std::fabs(value) * (spec.type == '%' ? 100 : 1);
  int precision = static_cast<int>(spec.precision.value_or(6));
  std::string digits;
  if (!std::isfinite(size)) {
    digits = std::isnan(size) ? "nan" : "inf";
  } else if (spec.type == '\0' && !spec.precision) {
    digits = PythonFloat(size);
  } else if (spec.type == 'e' || spec.type == 'E') {
    digits = fmt::format("{:.{}e}", size, precision);
  } else if (spec.type == 'g' || spec.type == 'G' || spec.type == '\0') {
    digits = fmt::format("{:.{}g}", size, std::max(precision, 1));
  } else {
    digits = fmt::format("{:.{}f}", size, precision);
  }
  if (spec.type == 'E' || spec.type == 'G')
    std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
  if (spec.grouping) digits = Group(digits);
  if (spec.type == '%') digits += '%';
  return Pad(spec, SignText(spec, std::signbit(value) && !std::isnan(value)), digits, '>');
}

std::string FormatText(const Spec& spec, std::string_view text) {
  if (spec.precision) text = text.substr(0, OffsetOf(text, *spec.precision));
  return Pad(spec, "", std::string(text), '<');
}

bool IsFloatType(char type) {
  return std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

// ---- percent

class PercentFormatter {
 public:
  PercentFormatter(std::string_view pattern, const Value& values)
      : rest_(pattern), values_(values) {
    tuple_ = values.IsSequence(Sequence::kTuple);
  }

  std::string Run() {
    while (!rest_.empty()) {
      size_t mark = std::min(rest_.find('%'), rest_.size());
      out_ += rest_.substr(0, mark);
      rest_.remove_prefix(mark);
      if (rest_.empty()) break;
      rest_.remove_prefix(1);
      FormatOne();
      Budget::CheckBytes(out_.size());
    }
    size_t given = tuple_ ? values_.list().items.size() : 1;
    if (used_ < given && !values_.IsDict())
      throw Fault("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Value NextValue() {
    if (used_ >= (tuple_ ? values_.list().items.size() : 1)) {
      throw Fault("not enough arguments for format string");
    }
    ++used_;
    return tuple_ ? values_.list().items[used_ - 1] : values_;
  }
  int64_t NumberOrStar(int64_t limit) {
    if (!Take(rest_, '*')) return ReadNumber(rest_, limit);
    Value value = NextValue();
    if (!value.IsInt() || value.integer() < 0 || value.integer() > limit)
      throw Fault("* wants a small integer");
    return static_cast<int64_t>(value.integer());
  }

  void FormatOne() {
    if (Take(rest_, '%')) {
      out_ += '%';
      return;
    }
    Spec spec;
    std::optional<Value> named;
    if (Take(rest_, '(')) {
      size_t close = rest_.find(')');
      if (close == std::string_view::npos) throw Fault("incomplete format key");
      if (!values_.IsDict()) throw Fault("format requires a mapping");
      const Value* found = values_.dict().Find(rest_.substr(0, close));
      if (found == nullptr)
        throw Fault("format key '" + Printable(rest_.substr(0, close), 60) + "' is missing");
      named = *found;
      rest_.remove_prefix(close + 1);
    }
    ReadFlags(spec);
    spec.width = NumberOrStar(kMaxWidth);
    if (Take(rest_, '.')) spec.precision = NumberOrStar(kMaxPrecision);
    if (rest_.empty()) throw Fault("incomplete format");
    spec.type = rest_[0];
    rest_.remove_prefix(1);
    out_ += Convert(spec, named ? *named : NextValue());
  }

  void ReadFlags(Spec& spec) {
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      switch (rest_[0]) {
        case '-':
          spec.align = '<';
          break;
        case '0':
          if (spec.align != '\0') break;
          spec.align = '=';
          spec.fill = "0";
          break;
        case '+':
        case ' ':
          if (spec.sign != '+') spec.sign = rest_[0];
          break;
        case '#':
          spec.alternate = true;
          break;
        default:
          return;
      }
    }
  }

  static std::string Convert(Spec spec, const Value& value) {
    bool zero_filled = spec.align == '=';
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        if (zero_filled || spec.align == '\0') spec.align = '>';
        spec.fill = " ";
        return FormatText(spec, spec.type == 's' ? value.Str() : value.Repr());
      case 'd':
      case 'i':
      case 'u':
        if (value.IsFloat() && std::isfinite(value.number()) && std::fabs(value.number()) < 1e18) {
          return FormatInt(spec, static_cast<Int>(value.number()));
        }
        [[fallthrough]];
      case 'x':
      case 'X':
      case 'o':
        if (value.IsUndefined()) throw Fault(value.undefined_message());
        if (value.IsInt() || value.IsBool()) return FormatInt(spec, value.integer());
        throw Fault(
            fmt::format("%{} format: a number is required, not {}", spec.type, value.type_name()));
      default:
        break;
    }
    if (!IsFloatType(spec.type) || spec.type == '%') throw Fault("unsupported format character");
    if (value.IsUndefined()) throw Fault(value.undefined_message());
    if (!value.IsNumber())
      throw Fault(fmt::format("must be real number, not {}", value.type_name()));
    return FormatFloat(spec, value.number());
  }

  std::string_view rest_;
  const Value& values_;
  bool tuple_;
  size_t used_ = 0;
  std::string out_;
};

// ---- braces

class BraceFormatter {
 public:
  explicit BraceFormatter(const Args& args) : args_(args) {}

  std::string Run(std::string_view pattern, int level) {
    std::string out;
    for (size_t i = 0; i < pattern.size(); ++i) {
      char c = pattern[i];
      if (c != '{' && c != '}') {
        out += c;
      } else if (i + 1 < pattern.size() && pattern[i + 1] == c) {
        out += c;
        ++i;
      } else if (c == '}') {
        throw Fault("Single '}' encountered in format string");
      } else {
        size_t end = FieldEnd(pattern, i + 1);
        out += Field(pattern.substr(i + 1, end - i - 1), level);
        i = end;
      }
      Budget::CheckBytes(out.size());
    }
    return out;
  }

 private:
  static size_t FieldEnd(std::string_view pattern, size_t at) {
    for (int open = 1; at < pattern.size(); ++at) {
      if (pattern[at] == '{') ++open;
      if (pattern[at] == '}' && --open == 0) return at;
    }
    throw Fault("expected '}' before end of string");
  }

  std::string Field(std::string_view field, int level) {
    if (level > 1) throw Fault("Max string recursion exceeded");
    size_t name_end = std::min(field.find_first_of(":!"), field.size());
    Value value = Lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (Take(rest, '!')) {
      char conversion = rest.empty() ? '\0' : rest[0];
      if (conversion != 's' && conversion != 'r' && conversion != 'a')
        throw Fault("unknown conversion in format string");
      value = Value(conversion == 's' ? value.Str() : value.Repr());
      rest.remove_prefix(1);
      if (!rest.empty() && rest[0] != ':') throw Fault("expected ':' after conversion specifier");
    }
    Take(rest, ':');
    return Format(Run(rest, level + 1), value);
  }

  Value Lookup(std::string_view path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = First(path.substr(0, end));
    for (path.remove_prefix(end); !path.empty();) {
      if (Take(path, '.')) {
        end = std::min(path.find_first_of(".["), path.size());
        value = GetAttribute(value, path.substr(0, end));
        path.remove_prefix(end);
      } else {
        size_t close = path.find(']');
        if (!Take(path, '[') || close == std::string_view::npos)
          throw Fault("Missing ']' in format string");
        std::string_view key = path.substr(0, close - 1);
        value = GetItem(value, IsIndex(key) ? Value(ReadNumber(key, INT32_MAX)) : Value(key));
        path.remove_prefix(close);
      }
    }
    return value;
  }
  static bool IsIndex(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }
  Value First(std::string_view name) {
    if (!name.empty() && !IsIndex(name)) {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      throw Fault("format has no argument '" + Printable(name, 60) + "'");
    }
    size_t index = name.empty() ? next_++ : static_cast<size_t>(ReadNumber(name, INT32_MAX));
    if (index >= args_.positional.size()) {
      throw Fault("Replacement index out of range for positional args tuple");
    }
    return args_.positional[index];
  }

  static Spec ParseSpec(std::string_view text) {
    Spec spec;
    size_t first = text.empty() ? 0 : CodePointBytes(text);
    if (first > 0 && first < text.size() && IsAlign(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else if (!text.empty() && IsAlign(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
    if (!text.empty() && (text[0] == '+' || text[0] == '-' || text[0] == ' ')) {
      spec.sign = text[0];
      text.remove_prefix(1);
    }
    spec.alternate = Take(text, '#');
    if (Take(text, '0') && spec.align == '\0') {
      spec.align = '=';
      spec.fill = "0";
    }
    spec.width = ReadNumber(text, kMaxWidth);
    spec.grouping = Take(text, ',');
    if (Take(text, '.')) spec.precision = ReadNumber(text, kMaxPrecision);
    if (text.size() > 1) throw Fault("Invalid format specifier");
    if (!text.empty()) spec.type = text[0];
    return spec;
  }

  static std::string Format(const std::string& text, const Value& value) {
    if (text.empty()) return value.Str();
    Spec spec = ParseSpec(text);
    bool whole = value.IsInt() || value.IsBool();
    if (value.IsString() && (spec.type == '\0' || spec.type == 's'))
      return FormatText(spec, value.text());
    if (whole && std::string_view("\0dxXob", 6).find(spec.type) != std::string_view::npos) {
      if (spec.precision) throw Fault("Precision not allowed in integer format specifier");
      return FormatInt(spec, value.integer());
    }
    if (value.IsNumber() && (spec.type == '\0' || IsFloatType(spec.type)))
      return FormatFloat(spec, value.number());
    throw Fault(fmt::format("unsupported format string for a value of type {}", value.type_name()));
  }

  const Args& args_;
  size_t next_ = 0;
};

}  // namespace

Value PercentFormat(const Value& pattern, const Value& values) {
  std::string text = PercentFormatter(pattern.text(), values).Run();
  return pattern.IsMarkup() ? Value::Markup(std::move(text)) : Value(std::move(text));
}

Value BraceFormat(const std::string& pattern, const Args& args) {
  return BraceFormatter(args).Run(pattern, 0);
}

}  // namespace lockstep::jinja
