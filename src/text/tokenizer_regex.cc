#include "text/tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

constexpr size_t kMaxPatternBytes = 1 << 16;

// Ranges inside a class. White_Space, its complement, and word characters.
constexpr std::string_view kSpaceRanges =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNonSpaceRanges =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{d7ff})"
    R"(\x{e000}-\x{10ffff})";
constexpr std::string_view kWordRanges = R"(\p{L}\p{M}\p{N}\p{Pc})";

// Scripts, which Oniguruma takes by Script and PCRE2, without "sc:", by Script_Extensions.
constexpr std::string_view kScripts[] = {
    "Arabic",   "Armenian", "Bengali",   "Bopomofo",  "Cyrillic", "Devanagari",
    "Ethiopic", "Georgian", "Greek",     "Gujarati",  "Gurmukhi", "Han",
    "Hangul",   "Hebrew",   "Hiragana",  "Kannada",   "Katakana", "Khmer",
    "Lao",      "Latin",    "Malayalam", "Mongolian", "Myanmar",  "Oriya",
    "Sinhala",  "Tamil",    "Telugu",    "Thai",      "Tibetan"};

struct CodeDeleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct StackDeleter {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
using CodePtr = std::unique_ptr<pcre2_code, CodeDeleter>;

std::string ErrorText(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

CodePtr Compile(const std::string& who, std::string_view original, std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  // Oniguruma's ^ and $ are those of a line.
  CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &at, nullptr));
  if (!code) {
    throw Refused("{}: expected a regular expression, found {}: {}", who, Printable(original),
                  ErrorText(error));
  }
  // Without a compiler for this machine the pattern is interpreted: slower, the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// Rewrites a pattern from Oniguruma's dialect.
class Translator {
 public:
  Translator(const std::string& who, std::string_view pattern) : who_(who), pattern_(pattern) {}

  std::string Run() {
    std::string out;
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '[') {
        out += Class(0);
      } else if (pattern_[at_] == '\\' && at_ + 1 < pattern_.size()) {
        out += EscapeOutside();
      } else {
        out += pattern_[at_++];
      }
    }
    return out;
  }

 private:
  [[noreturn]] void Unsupported(std::string_view what) const {
    throw Refused("{}: expected a regular expression without {}, found {}", who_, what,
                  Printable(pattern_));
  }

  std::optional<std::string> CodePointEscape() {
    if (pattern_[at_ + 1] != 'u' || at_ + 6 > pattern_.size()) return std::nullopt;
    const std::string_view hex = pattern_.substr(at_ + 2, 4);
    if (hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos) return std::nullopt;
    at_ += 6;
    return fmt::format("\\x{{{}}}", hex);
  }

  std::optional<std::string> ScriptEscape() {
    const char letter = pattern_[at_ + 1];
    if ((letter != 'p' && letter != 'P') || pattern_.substr(at_ + 2, 1) != "{") return std::nullopt;
    const size_t end = pattern_.find('}', at_);
    if (end == pattern_.npos) return std::nullopt;
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    if (std::find(std::begin(kScripts), std::end(kScripts), name) == std::end(kScripts)) {
      return std::nullopt;
    }
    at_ = end + 1;
    return fmt::format("\\{}{{{}sc:{}}}", letter, negated ? "^" : "", name);
  }

  std::string EscapeOutside() {
    if (const auto code_point = CodePointEscape()) return *code_point;
    if (const auto script = ScriptEscape()) return *script;
    const char letter = pattern_[at_ + 1];
    at_ += 2;
    switch (letter) {
      case 's':
        return fmt::format("[{}]", kSpaceRanges);
      case 'S':
        return fmt::format("[^{}]", kSpaceRanges);
      case 'w':
        return fmt::format("[{}]", kWordRanges);
      case 'W':
        return fmt::format("[^{}]", kWordRanges);
      case 'b':
        return fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWordRanges);
      default:
        return std::string("\\") + letter;
    }
  }

  std::string EscapeInside() {
    if (const auto code_point = CodePointEscape()) return *code_point;
    if (const auto script = ScriptEscape()) return *script;
    const char letter = pattern_[at_ + 1];
    at_ += 2;
    switch (letter) {
      case 's':
        return std::string(kSpaceRanges);
      case 'S':
        return std::string(kNonSpaceRanges);
      case 'w':
        return std::string(kWordRanges);
      case 'W':
        Unsupported("\\W in a class");
      default:
        return std::string("\\") + letter;
    }
  }

  // A class from its '[' to its ']'. Classes inside are unions, but after && intersections, and are
  // supported where an intersection needs them: [LEFT&&[RIGHT]].
  std::string Class(int depth) {
    if (depth > 4) Unsupported("deeply nested classes");
    ++at_;
    std::string content;
    if (at_ < pattern_.size() && pattern_[at_] == '^') content += pattern_[at_++];
    if (at_ < pattern_.size() && pattern_[at_] == ']') {
      content += "\\]";
      ++at_;
    }
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_.substr(at_, 3) == "&&[") {
        at_ += 2;
        const std::string right = Class(depth + 1);
        if (at_ >= pattern_.size() || pattern_[at_] != ']') Unsupported("this class intersection");
        ++at_;
        return Intersection("[" + content + "]", right);
      }
      if (pattern_[at_] == '\\' && at_ + 1 < pattern_.size()) {
        content += EscapeInside();
      } else if (pattern_.substr(at_, 2) == "[:") {
        content += "[:";
        at_ += 2;
      } else if (pattern_[at_] == '[') {
        content += "\\[";
        ++at_;
      } else {
        content += pattern_[at_++];
      }
    }
    if (at_ < pattern_.size()) ++at_;
    return "[" + content + "]";
  }

  // The code points in both classes, as one class of ranges: a group with a look-ahead would need a
  // stack as deep as the text is long.
  std::string Intersection(const std::string& left, const std::string& right) {
    // Each takes a walk over all code points; the rules that have any have four.
    if (++intersections_ > 8) Unsupported("more than 8 class intersections");
    const Regex both(who_, "(?:(?=" + left + ")" + right + ")");
    std::string all;
    for (char32_t code = 0; code <= 0x10FFFF; ++code) {
      if (code < 0xD800 || code > 0xDFFF) AppendUtf8(code, &all);
    }
    std::string out = "[";
    char32_t first = 0;
    char32_t next = 0;
    const auto flush = [&] {
      if (next > first) out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", uint32_t{first}, next - 1u);
    };
    both.ForEachMatch(all, [&](size_t begin, size_t) {
      const char32_t code = DecodeUtf8(all, begin).code;
      if (code != next) {
        flush();
        first = code;
      }
      next = code + 1;
    });
    flush();
    if (out.size() == 1) Unsupported("an empty class intersection");
    return out + "]";
  }

  const std::string& who_;
  std::string_view pattern_;
  size_t at_ = 0;
  int intersections_ = 0;
};

}  // namespace

struct Regex::Code {
  CodePtr compiled;
};

Regex::Regex(const std::string& who, std::string_view pattern) : pattern_(pattern) {
  if (pattern.size() > kMaxPatternBytes || !IsUtf8(pattern)) {
    throw Refused("{}: expected a regular expression of at most {} bytes of UTF-8, found {}", who,
                  kMaxPatternBytes, Printable(pattern));
  }
  const std::string translated = Translator(who, pattern).Run();
  code_ = std::make_shared<const Code>(Code{Compile(who, pattern, translated)});
}

void Regex::ForEachMatch(std::string_view text,
                         const std::function<void(size_t begin, size_t end)>& visit) const {
  constexpr uint32_t kMinSteps = 1'000'000;
  constexpr size_t kStackStart = 32 << 10;
  constexpr size_t kStackMax = 4 << 20;
  const pcre2_code* code = code_->compiled.get();
  std::unique_ptr<pcre2_match_data, MatchDeleter> match(pcre2_match_data_create(1, nullptr));
  std::unique_ptr<pcre2_match_context, ContextDeleter> context;
  std::unique_ptr<pcre2_jit_stack, StackDeleter> stack;
  // The usual text is short, and needs neither a limit nor a stack of its own.
  if (text.size() > 4096) {
    context.reset(pcre2_match_context_create(nullptr));
    stack.reset(pcre2_jit_stack_create(kStackStart, kStackMax, nullptr));
    if (context) {
      const uint64_t steps = uint64_t{kMinSteps} + 8 * text.size();
      pcre2_set_match_limit(context.get(),
                            static_cast<uint32_t>(std::min<uint64_t>(steps, 1u << 31)));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    }
  }
  for (size_t from = 0; from <= text.size();) {
    const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                  from, PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      throw Failed("tokenizer: pattern {}: no answer within the limits on a piece of {} bytes: {}",
                   Printable(pattern_), text.size(), ErrorText(found));
    }
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    const size_t begin = span[0];
    const size_t end = std::max(span[0], span[1]);
    visit(begin, end);
    from = end;
    if (end == begin) from += end < text.size() ? DecodeUtf8(text, end).bytes : 1;
  }
}

}  // namespace lockstep
