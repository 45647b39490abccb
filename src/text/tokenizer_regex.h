// Regular expressions of pre-tokenizers, as the Hugging Face library writes them (Oniguruma's
// dialect), on PCRE2 with its compiler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

// A compiled pattern, safe to use from many threads.
//
// What the two dialects see differently is rewritten: \s, \w and \b follow the Unicode standard's
// definitions (PCRE2 counts U+180E as a space), a class may be an intersection ([..&&[..]]), and
// \uXXXX is a code point. Matching never recurses, and each match takes at most a fixed multiple of
// the text's length in steps: beyond that, ForEachMatch throws Failed.
class Regex {
 public:
  // Refused "WHO: expected a regular expression, found ...: why" where it cannot be compiled.
  Regex(const std::string& who, std::string_view pattern);

  // Calls `visit(begin, end)` for every match in `text`, left to right, without overlaps; an empty
  // match has begin == end. `text` must be well-formed UTF-8.
  void ForEachMatch(std::string_view text,
                    const std::function<void(size_t begin, size_t end)>& visit) const;

 private:
  struct Code;
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

}  // namespace lockstep
