#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "text/jinja_string.h"

namespace lockstep::jinja {
namespace {

// Longest first where one starts another.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool IsDecimal(char c) { return c >= '0' && c <= '9'; }

// Line ends become "\n" and one at the end of the template is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    while (at_ < text_.size()) LexRoot();
    Emit(Token::Type::kEnd, text_.size(), "");
    return std::move(tokens_);
  }

 private:
  bool Starts(std::string_view prefix, size_t at) const {
    return std::string_view(text_).substr(at, prefix.size()) == prefix;
  }
  size_t SkipSpace(size_t at) const {
    while (at < text_.size() && IsSpace(FirstCodePoint(std::string_view(text_).substr(at)))) {
      at += CodePointBytes(std::string_view(text_).substr(at));
    }
    return at;
  }

  // Moves the line counter to byte `at`, which never goes back by more than the current line.
  void Place(size_t at, int* line, int* column) {
    for (; counted_ < at; ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        line_start_ = counted_ + 1;
      }
    }
    *line = line_;
    *column = at >= line_start_ ? static_cast<int>(at - line_start_) + 1 : 1;
  }
  [[noreturn]] void Fail(size_t at, std::string message) {
    Fault fault(std::move(message));
    int line, column;
    Place(at, &line, &column);
    fault.Locate(line, column);
    throw fault;
  }
  Token& Emit(Token::Type type, size_t at, std::string text) {
    Token token;
    token.type = type;
    token.text = std::move(text);
    Place(at, &token.line, &token.column);
    return tokens_.emplace_back(std::move(token));
  }

  // Text up to the next tag, then that tag.
  void LexRoot() {
    size_t tag = at_;
    while ((tag = text_.find('{', tag)) != std::string::npos) {
      if (tag + 1 < text_.size() &&
          std::string_view("%{#").find(text_[tag + 1]) != std::string_view::npos) {
        break;
      }
      ++tag;
    }
    if (tag == std::string::npos) {
      EmitData(text_.size());
      at_ = text_.size();
      return;
    }
    char kind = text_[tag + 1];
    size_t inside = tag + 2;
    char sign = inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+')
                    ? text_[inside]
                    : '\0';
    if (sign != '\0') ++inside;
    EmitData(tag, sign, kind != '{');
    line_starting_ = false;
    at_ = inside;
    if (kind == '#') return LexComment(tag);
    if (kind == '%' && LexRaw(tag)) return;
    Emit(kind == '{' ? Token::Type::kVariableBegin : Token::Type::kBlockBegin, tag, "");
    LexTag(kind == '{');
  }

  // Text from at_ to `end`, cut as the sign of the tag behind it and lstrip_blocks ask.
  void EmitData(size_t end, char sign = '+', bool lstrip = false) {
    std::string_view data = std::string_view(text_).substr(at_, end - at_);
    if (sign == '-') {
      data = Strip(data, Side::kRight);
    } else if (sign != '+' && lstrip) {
      size_t line = data.rfind('\n') + 1;  // 0 where there is no line end
      if ((line > 0 || line_starting_) && Strip(data.substr(line), Side::kLeft).empty()) {
        data = data.substr(0, line);
      }
    }
    if (!data.empty()) Emit(Token::Type::kData, at_, std::string(data));
  }

  // The end of a tag at `at` where it starts there, closed by `close`: `-` eats blanks, trim_blocks
  // one line end.
  std::optional<size_t> TagEnd(size_t at, std::string_view close, bool trim) const {
    char sign = at < text_.size() ? text_[at] : '\0';
    if (sign == '-' && Starts(close, at + 1)) return SkipSpace(at + 1 + close.size());
    if (trim && sign == '+' && Starts(close, at + 1)) return at + 1 + close.size();
    if (!Starts(close, at)) return std::nullopt;
    size_t end = at + close.size();
    return trim && end < text_.size() && text_[end] == '\n' ? end + 1 : end;
  }
  void Leave(size_t end) {
    at_ = end;
    line_starting_ = text_[end - 1] == '\n';
  }

  void LexComment(size_t tag) {
    size_t close = text_.find("#}", at_);
    if (close == std::string::npos) Fail(tag, "Missing end of comment tag");
    if (close > at_ && (text_[close - 1] == '-' || text_[close - 1] == '+')) --close;
    Leave(*TagEnd(close, "#}", true));
  }

  // `{% raw %}` to `{% endraw %}` as text; false where the tag at `tag` is another.
  bool LexRaw(size_t tag) {
    size_t name = SkipSpace(at_);
    if (!Starts("raw", name)) return false;
    size_t close = SkipSpace(name + 3);
    if (Starts("-%}", close)) {
      at_ = SkipSpace(close + 3);
    } else if (Starts("%}", close)) {
      at_ = close + 2;
    } else {
      return false;
    }
    line_starting_ = text_[at_ - 1] == '\n';
    for (size_t end = at_; (end = text_.find("{%", end)) != std::string::npos; end += 2) {
      size_t inside = end + 2;
      char sign = inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+')
                      ? text_[inside]
                      : '\0';
      if (sign != '\0') ++inside;
      inside = SkipSpace(inside);
      if (!Starts("endraw", inside)) continue;
      auto after = TagEnd(SkipSpace(inside + 6), "%}", true);
      if (!after) continue;
      EmitData(end, sign, true);
      Leave(*after);
      return true;
    }
    Fail(tag, "Missing end of raw directive");
  }

  void LexTag(bool variable) {
    std::string_view close = variable ? "}}" : "%}";
    std::vector<char> open;
    while (true) {
      at_ = SkipSpace(at_);
      if (at_ >= text_.size()) return;
      if (open.empty()) {
        if (auto end = TagEnd(at_, close, !variable)) {
          Emit(variable ? Token::Type::kVariableEnd : Token::Type::kBlockEnd, at_, "");
          return Leave(*end);
        }
      }
      LexToken(open);
    }
  }

  void LexToken(std::vector<char>& open) {
    char c = text_[at_];
    if (IsDecimal(c)) return LexNumber();
    if (NameBytes(at_) > 0) return LexName();
    if ((c == '\'' || c == '"') && LexString(c)) return;
    for (std::string_view op : kOperators) {
      if (!Starts(op, at_)) continue;
      Balance(op[0], open);
      Emit(Token::Type::kOperator, at_, std::string(op));
      at_ += op.size();
      return;
    }
    std::string_view rest = std::string_view(text_).substr(at_);
    Fail(at_, "unexpected char '" + Printable(rest.substr(0, CodePointBytes(rest))) + "'");
  }

  void Balance(char c, std::vector<char>& open) {
    static constexpr std::string_view kPairs = "(){}[]";
    size_t place = kPairs.find(c);
    if (place == std::string_view::npos) return;
    if (place % 2 == 0) {
      open.push_back(kPairs[place + 1]);
      return;
    }
    if (open.empty()) Fail(at_, fmt::format("unexpected '{}'", c));
    if (open.back() != c) Fail(at_, fmt::format("unexpected '{}', expected '{}'", c, open.back()));
    open.pop_back();
  }

  // Bytes of the code point at `at` where it may be part of a name, else 0.
  size_t NameBytes(size_t at) const {
    if (at >= text_.size()) return 0;
    unsigned char c = static_cast<unsigned char>(text_[at]);
    if (c < 0x80) return std::isalnum(c) || c == '_' ? 1 : 0;
    std::string_view rest = std::string_view(text_).substr(at);
    return IsAlpha(FirstCodePoint(rest)) ? CodePointBytes(rest) : 0;
  }
  void LexName() {
    size_t end = at_;
    while (size_t size = NameBytes(end)) end += size;
    Emit(Token::Type::kName, at_, text_.substr(at_, end - at_));
    at_ = end;
  }

  // The end of digits from `at`, single underscores between them; `at` itself where there is none.
  size_t Digits(size_t at) const {
    if (at >= text_.size() || !IsDecimal(text_[at])) return at;
    while (at < text_.size()) {
      if (text_[at] == '_' && at + 1 < text_.size() && IsDecimal(text_[at + 1])) ++at;
      if (!IsDecimal(text_[at])) break;
      ++at;
    }
    return at;
  }
  // The end of a float at at_, or at_ where there is an integer.
  size_t FloatEnd() const {
    if (at_ > 0 && text_[at_ - 1] == '.') return at_;
    size_t end = Digits(at_);
    bool is_float = false;
    if (end < text_.size() && text_[end] == '.' && Digits(end + 1) > end + 1) {
      end = Digits(end + 1);
      is_float = true;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      size_t digits = end + 1;
      if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
      if (Digits(digits) > digits) return Digits(digits);
    }
    return is_float ? end : at_;
  }

  void LexNumber() {
    size_t end = FloatEnd();
    if (end > at_) {
      std::string digits = text_.substr(at_, end - at_);
      std::erase(digits, '_');
      double value = std::strtod(digits.c_str(),
                                 nullptr);  // C locale; too large reads as infinity, as in Python
      Emit(Token::Type::kFloat, at_, digits).value = Value(value);
    } else {
      end = LexInteger();
    }
    at_ = end;
  }

  size_t LexInteger() {
    int base = 10;
    size_t digits = at_;
    if (text_[at_] == '0' && at_ + 1 < text_.size()) {
      char letter = static_cast<char>(text_[at_ + 1] | 0x20);
      int other = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (other != 10 && DigitOf(at_ + 2, other) >= 0) {
        base = other;
        digits = at_ + 2;
      }
    }
    bool zeros =
        base == 10 && text_[at_] == '0';  // a decimal that starts with 0 has nothing but zeros
    Int value = 0;
    size_t end = digits;
    for (; end < text_.size(); ++end) {
      if (text_[end] == '_' && DigitOf(end + 1, base) >= 0) continue;
      int digit = DigitOf(end, base);
      if (digit < 0 || (zeros && digit > 0)) break;
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{digit}, &value)) {
        Fail(at_, "an integer is out of range");
      }
    }
    Emit(Token::Type::kInteger, at_, text_.substr(at_, end - at_)).value = Value(value);
    return end;
  }
  int DigitOf(size_t at, int base) const {
    if (at >= text_.size()) return -1;
    char c = text_[at];
    int digit = IsDecimal(c)                             ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : 99;
    return digit < base ? digit : -1;
  }

  // False where the string does not end.
  bool LexString(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return false;
    std::string value;
    for (size_t i = at_ + 1; i < end;) {
      if (text_[i] == '\\') {
        i = LexEscape(i + 1, end, value);
      } else {
        value += text_[i++];
      }
    }
    Emit(Token::Type::kString, at_, std::move(value));
    at_ = end + 1;
    return true;
  }

  // Appends what the escape at `at`, behind its backslash, stands for and returns its end.
  size_t LexEscape(size_t at, size_t end, std::string& value) {
    static constexpr std::string_view kLetters = "abfnrtv\\'\"\n";
    static constexpr std::string_view kMeaning = "\a\b\f\n\r\t\v\\'\"";
    char c = text_[at];
    if (size_t place = kLetters.find(c); place != std::string_view::npos) {
      if (place < kMeaning.size())
        value += kMeaning[place];  // a line end after a backslash stands for nothing
      return at + 1;
    }
    if (c >= '0' && c <= '7') return LexCode(at, std::min(end, at + 3), 8, value);
    if (c == 'x') return LexCode(at + 1, ExpectHex(at + 1, 2, end), 16, value);
    if (c == 'u') return LexCode(at + 1, ExpectHex(at + 1, 4, end), 16, value);
    if (c == 'U') return LexCode(at + 1, ExpectHex(at + 1, 8, end), 16, value);
    if (c == 'N') Fail(at, "character names in strings are not supported");
    value += '\\';  // Python keeps the backslash of what is no escape
    return at;
  }
  size_t ExpectHex(size_t at, size_t count, size_t end) {
    for (size_t i = at; i < at + count; ++i) {
      if (i >= end || DigitOf(i, 16) < 0) Fail(at, "a string has an escape with too few digits");
    }
    return at + count;
  }
  size_t LexCode(size_t at, size_t end, int base, std::string& value) {
    uint32_t code = 0;
    for (; at < end && DigitOf(at, base) >= 0; ++at) code = code * base + DigitOf(at, base);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      Fail(at, "a string has an escape that is no Unicode character");
    }
    AppendCodePoint(value, code);
    return at;
  }

  const std::string text_;
  size_t at_ = 0;
  bool line_starting_ = true;  // the tag before the current text ended with a line end
  size_t counted_ = 0;         // bytes whose lines are counted
  size_t line_start_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::Describe() const {
  switch (type) {
    case Type::kData:
      return "text";
    case Type::kVariableBegin:
      return "'{{'";
    case Type::kVariableEnd:
      return "'}}'";
    case Type::kBlockBegin:
      return "'{%'";
    case Type::kBlockEnd:
      return "'%}'";
    case Type::kString:
      return "a string";
    case Type::kEnd:
      return "the end of the template";
    default:
      return "'" + Printable(text, 40) + "'";
  }
}

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace lockstep::jinja
