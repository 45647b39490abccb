// The parts of a tokenizer.json around the model. What each type means: the documentation of the
// Hugging Face tokenizers library.
#include <algorithm>

#include "text/pretokenizers.h"
#include "text/tokenizer_json_node.h"
#include "text/vocab.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxId = (1 << 24) - 1;

struct Type {
  std::string_view name;
  void (*read)(const JsonNode& node, Vocab* vocab);
};

template <size_t n>
void ReadByType(const Type (&types)[n], const JsonNode& node, Vocab* vocab) {
  const JsonNode type = node.At("type");
  std::string known;
  for (const Type& candidate : types) {
    if (candidate.name == type.String()) return candidate.read(node, vocab);
    known += fmt::format(" {}", candidate.name);
  }
  type.Expected("one of" + known);
}

void ReadAll(const JsonNode& list, void (*read)(const JsonNode&, Vocab*), Vocab* vocab) {
  // boost::json bounds how deep a document nests, so this recursion is bounded too.
  const std::vector<JsonNode> items = list.Items();
  if (items.size() > 64) list.Expected("at most 64 steps");
  for (const JsonNode& item : items) read(item, vocab);
}

void Ignore(const JsonNode&, Vocab*) {}

// "pattern": {"String": ...} or {"Regex": ...}.
struct Pattern {
  std::string text;
  bool regex;
};
Pattern ReadPattern(const JsonNode& node) {
  const JsonNode pattern = node.At("pattern");
  if (const auto literal = pattern.Find("String")) return {std::string(literal->String()), false};
  return {std::string(pattern.At("Regex").String()), true};
}

template <NormalForm form>
void ReadForm(const JsonNode&, Vocab* vocab) {
  vocab->normalizer.push_back({.form = form});
}

template <NormalizerStep::Kind kind>
void ReadPlain(const JsonNode&, Vocab* vocab) {
  vocab->normalizer.push_back({.kind = kind});
}

void ReadStrip(const JsonNode& node, Vocab* vocab) {
  if (node.BoolOr("strip_left", true)) ReadPlain<NormalizerStep::Kind::kStripLeft>(node, vocab);
  if (node.BoolOr("strip_right", true)) ReadPlain<NormalizerStep::Kind::kStripRight>(node, vocab);
}

void ReadPrepend(const JsonNode& node, Vocab* vocab) {
  vocab->normalizer.push_back({.kind = NormalizerStep::Kind::kPrepend,
                               .content = std::string(node.At("prepend").String())});
}

void ReadReplace(const JsonNode& node, Vocab* vocab) {
  const Pattern pattern = ReadPattern(node);
  vocab->normalizer.push_back(
      {.kind = pattern.regex ? NormalizerStep::Kind::kReplaceRegex : NormalizerStep::Kind::kReplace,
       .pattern = pattern.text,
       .content = std::string(node.At("content").String())});
}

void ReadBertNormalizer(const JsonNode& node, Vocab* vocab) {
  const bool lowercase = node.BoolOr("lowercase", true);
  UseBertNormalizer({.clean = node.BoolOr("clean_text", true),
                     .space_ideographs = node.BoolOr("handle_chinese_chars", true),
                     .strip_accents = node.BoolOr("strip_accents", lowercase),
                     .lowercase = lowercase},
                    vocab);
}

int Base64Digit(char c) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t digit = kDigits.find(c);
  return digit == kDigits.npos ? -1 : static_cast<int>(digit);
}

void ReadPrecompiled(const JsonNode& node, Vocab* vocab) {
  const JsonNode map = node.At("precompiled_charsmap");
  uint32_t bits = 0;
  int count = 0;
  for (char c : map.String()) {
    if (c == '=') break;
    const int digit = Base64Digit(c);
    if (digit < 0) map.Expected("base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    vocab->charsmap.push_back(static_cast<char>(bits >> count & 0xFF));
  }
  ReadPlain<NormalizerStep::Kind::kCharsmap>(node, vocab);
}

void ReadByteLevel(const JsonNode& node, Vocab* vocab) {
  vocab->byte_alphabet = true;
  if (node.BoolOr("add_prefix_space", true)) {
    vocab->splits.push_back({.kind = SplitStep::Kind::kPrefixSpace});
  }
  if (node.BoolOr("use_regex", true)) vocab->splits.push_back(Gpt2Split());
}

// "prepend_scheme", or the older "add_prefix_space".
SplitStep::Prefix ReadPrefix(const JsonNode& node) {
  using Prefix = SplitStep::Prefix;
  const auto scheme = node.Find("prepend_scheme");
  if (!scheme) return node.BoolOr("add_prefix_space", true) ? Prefix::kAlways : Prefix::kNever;
  if (scheme->String() == "always") return Prefix::kAlways;
  if (scheme->String() == "first") return Prefix::kFirst;
  if (scheme->String() != "never") scheme->Expected("always, first or never");
  return Prefix::kNever;
}

// The character that stands for a space.
std::string ReadSpaceMark(const JsonNode& node) {
  const std::string mark = node.StringOr("replacement", kSpaceMark);
  if (CountChars(mark) != 1) node.At("replacement").Expected("one character");
  return mark;
}

void ReadMetaspace(const JsonNode& node, Vocab* vocab) {
  vocab->splits.push_back({.kind = SplitStep::Kind::kSpaceMark,
                           .pattern = ReadSpaceMark(node),
                           .prefix = ReadPrefix(node),
                           .cut = node.BoolOr("split", true)});
}

SplitStep::Matches ReadBehavior(const JsonNode& node) {
  using Matches = SplitStep::Matches;
  static constexpr std::pair<std::string_view, Matches> kNames[] = {
      {"Isolated", Matches::kIsolated},
      {"Removed", Matches::kRemoved},
      {"MergedWithPrevious", Matches::kMergedWithPrevious},
      {"MergedWithNext", Matches::kMergedWithNext},
      {"Contiguous", Matches::kContiguous}};
  const auto behavior = node.Find("behavior");
  if (!behavior) return Matches::kIsolated;
  for (const auto& [name, matches] : kNames) {
    if (behavior->String() == name) return matches;
  }
  behavior->Expected("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

void ReadSplit(const JsonNode& node, Vocab* vocab) {
  const Pattern pattern = ReadPattern(node);
  SplitStep step = pattern.regex
                       ? SplitOfPattern(pattern.text)
                       : SplitStep{.kind = SplitStep::Kind::kLiteral, .pattern = pattern.text};
  step.matches = ReadBehavior(node);
  step.invert = node.BoolOr("invert", false);
  vocab->splits.push_back(std::move(step));
}

void ReadDigits(const JsonNode& node, Vocab* vocab) {
  const bool individual = node.BoolOr("individual_digits", false);
  vocab->splits.push_back({.pattern = individual ? R"(\p{N})" : R"(\p{N}+)"});
}

void ReadPunctuation(const JsonNode& node, Vocab* vocab) {
  vocab->splits.push_back({.pattern = R"([\p{P}!-/:-@\[-`{-~])", .matches = ReadBehavior(node)});
}

void ReadWhitespace(const JsonNode&, Vocab* vocab) {
  vocab->splits.push_back({.pattern = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|)"
                                      R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)",
                           .matches = SplitStep::Matches::kRemoved,
                           .invert = true});
}

void ReadWhitespaceSplit(const JsonNode&, Vocab* vocab) {
  vocab->splits.push_back({.pattern = R"(\s)", .matches = SplitStep::Matches::kRemoved});
}

void ReadDelimiter(const JsonNode& node, Vocab* vocab) {
  vocab->splits.push_back({.kind = SplitStep::Kind::kLiteral,
                           .pattern = std::string(node.At("delimiter").String()),
                           .matches = SplitStep::Matches::kRemoved});
}

void ReadTemplate(const JsonNode& node, Vocab* vocab) {
  bool after = false;
  for (const JsonNode& item : node.At("single").Items()) {
    if (item.Find("Sequence")) {
      after = true;
      continue;
    }
    const std::string_view id = item.At("SpecialToken").At("id").String();
    for (const JsonNode& token : node.At("special_tokens").At(id).At("ids").Items()) {
      (after ? vocab->suffix : vocab->prefix).push_back(static_cast<int32_t>(token.Count(kMaxId)));
    }
  }
}

// BERT's and RoBERTa's: "cls": [text, id], "sep": [text, id].
void ReadClassifier(const JsonNode& node, Vocab* vocab) {
  for (const auto& [key, ids] : {std::pair("cls", &vocab->prefix), {"sep", &vocab->suffix}}) {
    const std::vector<JsonNode> pair = node.At(key).Items();
    if (pair.size() != 2) node.At(key).Expected("a text and an id");
    ids->push_back(static_cast<int32_t>(pair[1].Count(kMaxId)));
  }
}

void ReadByteLevelDecoder(const JsonNode&, Vocab* vocab) { vocab->decoding.byte_alphabet = true; }
void ReadByteFallback(const JsonNode&, Vocab* vocab) { vocab->decoding.byte_tokens = true; }

void ReadReplaceDecoder(const JsonNode& node, Vocab* vocab) {
  const Pattern pattern = ReadPattern(node);
  // It is applied to every token, so that a long one would multiply the file's size.
  if (node.At("content").String().size() > 64) node.At("content").Expected("at most 64 bytes");
  if (pattern.regex) node.At("pattern").Expected("a literal pattern");
  vocab->decoding.replacements.emplace_back(pattern.text, node.At("content").String());
}

void ReadStripDecoder(const JsonNode& node, Vocab* vocab) {
  if (node.At("content").String() != " ") node.At("content").Expected("a space");
  if (node.At("stop").Count(kMaxId) != 0) node.At("stop").Expected("0");
  vocab->decoding.strip_spaces = static_cast<size_t>(node.At("start").Count(kMaxId));
}

void ReadMetaspaceDecoder(const JsonNode& node, Vocab* vocab) {
  vocab->decoding.replacements.emplace_back(ReadSpaceMark(node), " ");
  vocab->decoding.strip_first_token = ReadPrefix(node) != SplitStep::Prefix::kNever;
}

void ReadWordPieceDecoder(const JsonNode& node, Vocab* vocab) {
  vocab->decoding.words = true;
  vocab->decoding.continuation = node.StringOr("prefix", "##");
  vocab->decoding.clean_up = node.BoolOr("cleanup", true);
  vocab->decoding.strip_spaces = 1;
}

}  // namespace

void ReadNormalizer(const JsonNode& node, Vocab* vocab) {
  using Kind = NormalizerStep::Kind;
  static constexpr Type kTypes[] = {
      {"Sequence",
       [](const JsonNode& n, Vocab* v) { ReadAll(n.At("normalizers"), ReadNormalizer, v); }},
      {"NFC", ReadForm<NormalForm::kNfc>},
      {"NFD", ReadForm<NormalForm::kNfd>},
      {"NFKC", ReadForm<NormalForm::kNfkc>},
      {"NFKD", ReadForm<NormalForm::kNfkd>},
      {"Lowercase", ReadPlain<Kind::kLowercase>},
      {"StripAccents", ReadPlain<Kind::kStripMarks>},
      {"Nmt", ReadPlain<Kind::kNmt>},
      {"Strip", ReadStrip},
      {"Prepend", ReadPrepend},
      {"Replace", ReadReplace},
      {"BertNormalizer", ReadBertNormalizer},
      {"Precompiled", ReadPrecompiled},
  };
  ReadByType(kTypes, node, vocab);
}

void ReadPreTokenizer(const JsonNode& node, Vocab* vocab) {
  static constexpr Type kTypes[] = {
      {"Sequence",
       [](const JsonNode& n, Vocab* v) { ReadAll(n.At("pretokenizers"), ReadPreTokenizer, v); }},
      {"ByteLevel", ReadByteLevel},
      {"Metaspace", ReadMetaspace},
      {"Split", ReadSplit},
      {"Digits", ReadDigits},
      {"Punctuation", ReadPunctuation},
      {"Whitespace", ReadWhitespace},
      {"WhitespaceSplit", ReadWhitespaceSplit},
      {"CharDelimiterSplit", ReadDelimiter},
      {"BertPreTokenizer", [](const JsonNode&, Vocab* v) { UseBertSplits(v); }},
  };
  ReadByType(kTypes, node, vocab);
}

void ReadPostProcessor(const JsonNode& node, Vocab* vocab) {
  static constexpr Type kTypes[] = {
      {"Sequence",
       [](const JsonNode& n, Vocab* v) { ReadAll(n.At("processors"), ReadPostProcessor, v); }},
      {"ByteLevel", Ignore},
      {"TemplateProcessing", ReadTemplate},
      {"BertProcessing", ReadClassifier},
      {"RobertaProcessing", ReadClassifier},
  };
  ReadByType(kTypes, node, vocab);
}

void ReadDecoder(const JsonNode& node, Vocab* vocab) {
  static constexpr Type kTypes[] = {
      {"Sequence", [](const JsonNode& n, Vocab* v) { ReadAll(n.At("decoders"), ReadDecoder, v); }},
      {"ByteLevel", ReadByteLevelDecoder},
      {"ByteFallback", ReadByteFallback},
      {"Fuse", Ignore},
      {"Replace", ReadReplaceDecoder},
      {"Strip", ReadStripDecoder},
      {"Metaspace", ReadMetaspaceDecoder},
      {"WordPiece", ReadWordPieceDecoder},
  };
  ReadByType(kTypes, node, vocab);
}

}  // namespace lockstep
