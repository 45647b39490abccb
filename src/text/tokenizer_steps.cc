#include "text/tokenizer_steps.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

// A file may ask for replacements of any length: what grows out of proportion is refused while it
// grows. No real rule comes near this (the longest decomposition in Unicode is eighteenfold).
size_t LimitFor(std::string_view text) { return 4096 + 64 * text.size(); }

void CheckGrowth(size_t bytes, size_t limit) {
  if (bytes > limit) {
    throw Failed("tokenizer: normalised text: expected at most {} bytes, found more", limit);
  }
}

std::string ReplaceAll(std::string_view text, std::string_view pattern, std::string_view content,
                       size_t limit) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t hit; !pattern.empty() && (hit = text.find(pattern, at)) != text.npos;) {
    out += text.substr(at, hit - at);
    out += content;
    CheckGrowth(out.size(), limit);
    at = hit + pattern.size();
  }
  out += text.substr(at);
  return out;
}

std::string ReplaceMatches(std::string_view text, const Regex& regex, std::string_view content,
                           size_t limit) {
  std::string out;
  size_t at = 0;
  regex.ForEachMatch(text, [&](size_t begin, size_t end) {
    out += text.substr(at, begin - at);
    out += content;
    CheckGrowth(out.size(), limit);
    at = end;
  });
  out += text.substr(at);
  return out;
}

// Each character through `map`, which appends what it becomes.
template <typename Map>
std::string MapChars(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    map(c.code, &out);
    at += c.bytes;
  }
  return out;
}

std::string StripLeft(std::string text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!IsWhitespace(c.code)) break;
    at += c.bytes;
  }
  return text.substr(at);
}

std::string StripRight(std::string text) {
  size_t keep = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    at += c.bytes;
    if (!IsWhitespace(c.code)) keep = at;
  }
  text.resize(keep);
  return text;
}

void CleanControl(char32_t code, std::string* out) {
  if (code == 0 || code == kReplacementChar || IsControl(code)) return;
  AppendUtf8(IsWhitespace(code) ? U' ' : code, out);
}

void CleanNmt(char32_t code, std::string* out) {
  const bool removed = (code >= 0x1 && code <= 0x8) || code == 0xB ||
                       (code >= 0xE && code <= 0x1F) || code == 0x7F || code == 0x8F ||
                       code == 0x9F;
  if (removed) return;
  const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                     (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
                     code == 0x2581 || code == 0xFEFF || code == kReplacementChar;
  AppendUtf8(space ? U' ' : code, out);
}

// The full mapping: one character has two lower-case ones.
void Lower(char32_t code, std::string* out) {
  AppendUtf8(ToLower(code), out);
  if (code == 0x130) AppendUtf8(0x307, out);
}

void SpaceIdeograph(char32_t code, std::string* out) {
  const bool ideograph = IsCjkIdeograph(code);
  if (ideograph) out->push_back(' ');
  AppendUtf8(code, out);
  if (ideograph) out->push_back(' ');
}

std::string CollapseSpaces(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

Normalizer::Normalizer(const Vocab& vocab)
    : charsmap_(fmt::format("{}: {}precompiled_charsmap", vocab.name, vocab.key_prefix),
                vocab.charsmap) {
  for (const NormalizerStep& rule : vocab.normalizer) {
    Step step{rule, std::nullopt};
    if (rule.kind == NormalizerStep::Kind::kReplaceRegex) {
      step.regex.emplace(vocab.name + ": normalizer", rule.pattern);
    }
    steps_.push_back(std::move(step));
  }
}

std::string Normalizer::Run(std::string_view text) const {
  const size_t limit = LimitFor(text);
  std::string out(text);
  for (const Step& step : steps_) {
    out = Apply(step, std::move(out), limit);
    CheckGrowth(out.size(), limit);
  }
  return out;
}

std::string Normalizer::Apply(const Step& step, std::string text, size_t limit) const {
  using Kind = NormalizerStep::Kind;
  const NormalizerStep& rule = step.rule;
  switch (rule.kind) {
    case Kind::kForm:
      return Normalize(text, rule.form);
    case Kind::kLowercase:
      return MapChars(text, Lower);
    case Kind::kStripAccents:
      return MapChars(text, [](char32_t c, std::string* out) {
        if (!IsNonspacingMark(c)) AppendUtf8(c, out);
      });
    case Kind::kStripMarks:
      return MapChars(text, [](char32_t c, std::string* out) {
        if (!IsMark(c)) AppendUtf8(c, out);
      });
    case Kind::kNmt:
      return MapChars(text, CleanNmt);
    case Kind::kReplace:
      return ReplaceAll(text, rule.pattern, rule.content, limit);
    case Kind::kReplaceRegex:
      return ReplaceMatches(text, *step.regex, rule.content, limit);
    case Kind::kPrepend:
      return text.empty() ? text : rule.content + text;
    case Kind::kAppend:
      return text.empty() ? text : text + rule.content;
    case Kind::kStripLeft:
      return StripLeft(std::move(text));
    case Kind::kStripRight:
      return StripRight(std::move(text));
    case Kind::kCleanControls:
      return MapChars(text, CleanControl);
    case Kind::kSpaceIdeographs:
      return MapChars(text, SpaceIdeograph);
    case Kind::kCharsmap:
      return charsmap_.Apply(text, limit);
    case Kind::kCollapseSpaces:
      return CollapseSpaces(text);
  }
  return text;
}

namespace {

using Views = std::vector<std::string_view>;
using Span = std::pair<size_t, size_t>;

void Push(std::string_view text, size_t begin, size_t end, Views* out) {
  if (end > begin) out->push_back(text.substr(begin, end - begin));
}

// Cuts `text` at the matches, ascending and apart, as `rule` says.
void CutAtMatches(std::string_view text, const std::vector<Span>& found, const SplitStep& rule,
                  Views* out) {
  using Matches = SplitStep::Matches;
  std::vector<std::pair<Span, bool>> parts;  // all of the text, and whether it is a match
  size_t at = 0;
  for (const Span& span : found) {
    if (span.first > at) parts.push_back({{at, span.first}, rule.invert});
    if (span.second > span.first) parts.push_back({span, !rule.invert});
    at = span.second;
  }
  if (at < text.size()) parts.push_back({{at, text.size()}, rule.invert});

  size_t begin = 0;  // of the piece that is being put together
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [span, match] = parts[i];
    const bool last = i + 1 == parts.size();
    const bool next_match = !last && parts[i + 1].second;
    bool ends = true;
    switch (rule.matches) {
      case Matches::kIsolated:
        break;
      case Matches::kRemoved:
        if (match) begin = span.second;
        break;
      case Matches::kMergedWithPrevious:
        ends = match || !next_match;
        break;
      case Matches::kMergedWithNext:
        ends = !match || next_match;
        break;
      case Matches::kContiguous:
        ends = match != next_match;
        break;
    }
    if (ends || last) {
      Push(text, begin, span.second, out);
      begin = span.second;
    }
  }
}

std::vector<Span> LiteralMatches(std::string_view text, std::string_view pattern) {
  std::vector<Span> found;
  for (size_t at = 0; !pattern.empty() && (at = text.find(pattern, at)) != text.npos;) {
    found.emplace_back(at, at + pattern.size());
    at += pattern.size();
  }
  return found;
}

// Digits in threes from the right end of each run.
void CutDigitGroups(std::string_view text, SplitStep::Kind kind, Views* out) {
  using Kind = SplitStep::Kind;
  size_t begin = 0;
  const auto cut = [&](size_t at) {
    Push(text, begin, at, out);
    begin = at;
  };
  for (size_t at = 0; at < text.size();) {
    std::vector<size_t> starts;  // of every digit of the run, and its end
    Utf8Char next = DecodeUtf8(text, at);
    size_t end = at;
    while (end < text.size() && IsDigit((next = DecodeUtf8(text, end)).code)) {
      starts.push_back(end);
      end += next.bytes;
    }
    const size_t digits = starts.size();
    if (digits == 0) {
      at += next.bytes;
      continue;
    }
    starts.push_back(end);
    const bool word_goes_on = end < text.size() && IsWordChar(next.code);
    if (kind != Kind::kDigitGroupsWordEnd || !word_goes_on) {
      if (kind != Kind::kDigitThousands) cut(at);
      for (size_t i = digits % 3; i < digits; i += 3) cut(starts[i]);
      if (kind != Kind::kDigitThousands) cut(end);
    }
    at = end;
  }
  Push(text, begin, text.size(), out);
}

// Space marks for spaces, one in front where the rule says so, and cuts before each.
void MarkSpaces(std::string_view text, const SplitStep& rule, bool first, Splitter::Pieces* pieces,
                Views* out) {
  using Prefix = SplitStep::Prefix;
  std::string marked = ReplaceAll(text, " ", rule.pattern, LimitFor(text));
  const bool wants = rule.prefix == Prefix::kAlways || (rule.prefix == Prefix::kFirst && first);
  if (wants && !marked.starts_with(rule.pattern)) marked.insert(0, rule.pattern);
  const std::string& kept = pieces->changed.emplace_back(std::move(marked));
  if (!rule.cut) {
    Push(kept, 0, kept.size(), out);
    return;
  }
  CutAtMatches(kept, LiteralMatches(kept, rule.pattern),
               {.matches = SplitStep::Matches::kMergedWithNext}, out);
}

}  // namespace

Splitter::Splitter(const Vocab& vocab) {
  for (const SplitStep& rule : vocab.splits) {
    Step step{rule, std::nullopt};
    if (rule.kind == SplitStep::Kind::kRegex) {
      step.regex.emplace(vocab.name + ": pre-tokenizer", rule.pattern);
    }
    steps_.push_back(std::move(step));
  }
}

Splitter::Pieces Splitter::Run(std::string_view text, bool at_start) const {
  using Kind = SplitStep::Kind;
  Pieces pieces;
  Push(text, 0, text.size(), &pieces.views);
  for (const Step& step : steps_) {
    const SplitStep& rule = step.rule;
    Views out;
    out.reserve(2 * pieces.views.size());
    bool first = at_start;
    for (std::string_view piece : pieces.views) {
      switch (rule.kind) {
        case Kind::kRegex: {
          std::vector<Span> found;
          step.regex->ForEachMatch(piece, [&](size_t b, size_t e) { found.emplace_back(b, e); });
          CutAtMatches(piece, found, rule, &out);
          break;
        }
        case Kind::kLiteral:
          CutAtMatches(piece, LiteralMatches(piece, rule.pattern), rule, &out);
          break;
        case Kind::kDigitGroups:
        case Kind::kDigitGroupsWordEnd:
        case Kind::kDigitThousands:
          CutDigitGroups(piece, rule.kind, &out);
          break;
        case Kind::kSpaceMark:
          MarkSpaces(piece, rule, first, &pieces, &out);
          break;
        case Kind::kPrefixSpace:
          if (piece.starts_with(' ')) {
            out.push_back(piece);
          } else {
            out.push_back(pieces.changed.emplace_back(fmt::format(" {}", piece)));
          }
          break;
      }
      first = false;
    }
    pieces.views = std::move(out);
  }
  return pieces;
}

}  // namespace lockstep
