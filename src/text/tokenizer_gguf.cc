// The vocabulary of a GGUF file: the keys tokenizer.ggml.*.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "gguf/gguf_file.h"
#include "text/pretokenizers.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string Key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

// What a model name of tokenizer.ggml.model means where other keys are missing.
struct ModelRule {
  std::string_view name;
  ModelKind kind;
  bool add_bos = false;
  bool add_eos = false;
  bool add_separator = false;
  bool space_prefix = false;
  // Ids where the file has no key and a control or unknown token lies there.
  std::vector<std::pair<Special, int32_t>> ids = {};
};

const std::vector<ModelRule>& ModelRules() {
  static const std::vector<ModelRule> rules = {
      {.name = "llama",
       .kind = ModelKind::kSentencePiece,
       .add_bos = true,
       .space_prefix = true,
       .ids = {{Special::kBos, 1}, {Special::kEos, 2}, {Special::kUnknown, 0}}},
      {.name = "gpt2", .kind = ModelKind::kBpe},
      {.name = "gemma4", .kind = ModelKind::kBpe},
      {.name = "whitespace", .kind = ModelKind::kBpe},
      {.name = "bert",
       .kind = ModelKind::kWordPiece,
       .add_bos = true,
       .add_separator = true,
       .ids = {{Special::kBos, 101},
               {Special::kUnknown, 100},
               {Special::kSeparator, 102},
               {Special::kPad, 0},
               {Special::kMask, 103}}},
      {.name = "t5",
       .kind = ModelKind::kUnigram,
       .add_eos = true,
       .ids = {{Special::kEos, 1}, {Special::kUnknown, 2}, {Special::kPad, 0}}},
      {.name = "rwkv", .kind = ModelKind::kRwkv},
      {.name = "plamo2",
       .kind = ModelKind::kPlamo2,
       .ids = {{Special::kBos, 1}, {Special::kEos, 2}, {Special::kUnknown, 0}, {Special::kPad, 3}}},
  };
  return rules;
}

const ModelRule& FindModelRule(const GgufMetadata& metadata) {
  const auto name = metadata.Required<std::string_view>(Key("model"));
  std::string known;
  for (const ModelRule& rule : ModelRules()) {
    if (rule.name == name) return rule;
    known += fmt::format(" {}", rule.name);
  }
  metadata.Refuse(Key("model"), fmt::format("expected one of{}, found {}", known, Printable(name)));
}

std::vector<float> ReadScores(const GgufMetadata& metadata, size_t count) {
  const std::string key = Key("scores");
  const std::optional<GgufValue> value = metadata.Find(key);
  const auto* array = value ? std::get_if<GgufArray>(&value->data) : nullptr;
  if (array != nullptr && array->element == GgufValueType::kInt32) {
    const auto whole = metadata.RequiredArray<int32_t>(key, GgufLength::Exactly(count));
    return {whole.begin(), whole.end()};
  }
  return metadata.OptionalArray<float>(key, GgufLength::Exactly(count))
      .value_or(std::vector<float>());
}

std::vector<Merge> ReadMerges(const GgufMetadata& metadata) {
  const std::string key = Key("merges");
  std::vector<Merge> merges;
  for (std::string_view text :
       metadata.OptionalArray<std::string_view>(key).value_or(std::vector<std::string_view>())) {
    // A part may begin with the space that parts two others.
    const size_t space = text.find(' ', 1);
    if (space == text.npos) {
      metadata.Refuse(key,
                      fmt::format("index {}: expected two tokens with a space between, found {}",
                                  merges.size(), Printable(text)));
    }
    merges.push_back({std::string(text.substr(0, space)), std::string(text.substr(space + 1))});
  }
  return merges;
}

// The id at `name`, or nothing where there is no such key or it says "none" (-1).
std::optional<int32_t> ReadId(const GgufMetadata& metadata, std::string_view name) {
  if (name.empty()) return std::nullopt;
  const auto id = metadata.Optional<int64_t>(Key(name));
  if (!id || *id == -1 || *id == std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(std::clamp<int64_t>(*id, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}

void ReadSpecials(const GgufMetadata& metadata, const ModelRule& rule, Vocab* vocab) {
  const auto in_range = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < vocab->tokens.size();
  };
  for (const auto& [which, id] : rule.ids) {
    if (in_range(id) && !IsTextToken(vocab->types[static_cast<size_t>(id)]))
      vocab->special_id(which) = id;
  }
  for (const SpecialName& name : SpecialNames()) {
    std::optional<int32_t> id = ReadId(metadata, name.key);
    if (!id) id = ReadId(metadata, name.older_key);
    if (!id) continue;
    // A padding id past the vocabulary is common and harmless; one that starts or ends texts is not.
    const bool needed = name.which == Special::kBos || name.which == Special::kEos ||
                        name.which == Special::kEot || name.which == Special::kEom;
    if (in_range(*id) || needed) vocab->special_id(name.which) = *id;
  }
}

// Appends the special token to `ids` where the file, or else its model, asks for it.
void AddAround(const GgufMetadata& metadata, std::string_view flag, bool otherwise, Special which,
               const Vocab& vocab, std::vector<int32_t>* ids) {
  const std::optional<bool> asked = metadata.Optional<bool>(Key(flag));
  if (!asked.value_or(otherwise)) return;
  const int32_t id = vocab.special_id(which);
  if (id != kNoToken) {
    ids->push_back(id);
  } else if (asked) {
    const auto name = std::find_if(SpecialNames().begin(), SpecialNames().end(),
                                   [&](const SpecialName& n) { return n.which == which; });
    metadata.Refuse(Key(flag), fmt::format("expected {} beside it, found none", Key(name->key)));
  }
}

void UsePretokenizer(const GgufMetadata& metadata, const Pretokenizer& pre, Vocab* vocab) {
  vocab->byte_alphabet = vocab->decoding.byte_alphabet = !pre.raw_text;
  vocab->byte_fallback = vocab->decoding.byte_tokens = pre.raw_text;
  vocab->ignore_merges = pre.ignore_merges;
  vocab->whole_newlines = pre.whole_newlines;
  vocab->splits = pre.splits;
  if (pre.nfc) vocab->normalizer.push_back({.form = NormalForm::kNfc});
  if (pre.space_marks) UseSpaceMarks(vocab, false);
  if (pre.name == "whitespace" && metadata.OptionalOr<bool>(Key("normalizer.lowercase"), false)) {
    vocab->normalizer.push_back({.kind = NormalizerStep::Kind::kLowercase});
  }
}

void UseBert(const GgufMetadata& metadata, Vocab* vocab) {
  const bool lowercase = metadata.OptionalOr<bool>(Key("normalizer.lowercase"), true);
  const bool strip = metadata.OptionalOr<bool>(Key("normalizer.strip_accents"), lowercase);
  UseBertNormalizer({.strip_accents = strip, .lowercase = lowercase}, vocab);
  UseBertSplits(vocab);
  vocab->word_start = kSpaceMark;
  vocab->decoding.words = vocab->decoding.clean_up = true;
  vocab->decoding.word_start = kSpaceMark;
  vocab->decoding.strip_spaces = 1;
}

void UseUnigram(const GgufMetadata& metadata, bool space_prefix, Vocab* vocab) {
  const auto charsmap = metadata.OptionalBytes(Key("precompiled_charsmap"));
  if (charsmap) {
    vocab->charsmap.assign(reinterpret_cast<const char*>(charsmap->data()), charsmap->size());
    vocab->normalizer.push_back({.kind = NormalizerStep::Kind::kCharsmap});
  }
  if (metadata.OptionalOr<bool>(Key("remove_extra_whitespaces"), false)) {
    vocab->normalizer.push_back({.kind = NormalizerStep::Kind::kCollapseSpaces});
  }
  UseSpaceMarks(vocab, space_prefix);
}

// GGUF has no key for white space that a token takes with it: models that need it are known by name.
void UseStripping(const GgufMetadata& metadata, std::string_view pre, Vocab* vocab) {
  std::string model(metadata.OptionalOr<std::string_view>("general.name", ""));
  std::transform(model.begin(), model.end(), model.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const bool phi3 = model.find("phi-3") != model.npos || model.find("phi3") != model.npos;
  const bool jina = pre.starts_with("jina-v2-");
  for (AddedToken& added : vocab->added) {
    const std::string& text = vocab->tokens[static_cast<size_t>(added.id)];
    added.strip_right = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    added.strip_left = (jina && text == "<mask>") || (pre == "modern-bert" && text == "[MASK]");
  }
}

// Texts, scores and types, and the tokens that are found before the model runs.
void ReadTokens(const GgufMetadata& metadata, Vocab* vocab) {
  vocab->tokens = metadata.RequiredArray<std::string>(Key("tokens"));
  const size_t count = vocab->tokens.size();
  vocab->scores = ReadScores(metadata, count);
  vocab->types.assign(count, TokenType::kNormal);
  const auto types = metadata.OptionalArray<uint8_t>(Key("token_type"), GgufLength::Exactly(count),
                                                     {.min = 0, .max = kTokenTypes - 1});
  if (types) {
    std::transform(types->begin(), types->end(), vocab->types.begin(),
                   [](uint8_t type) { return static_cast<TokenType>(type); });
  }
  for (size_t id = 0; id < count; ++id) {
    const TokenType type = vocab->types[id];
    if (type == TokenType::kControl || type == TokenType::kUnknown ||
        type == TokenType::kUserDefined) {
      vocab->added.push_back({.id = static_cast<int32_t>(id)});
    }
  }
}

// A vocabulary whose rules the file describes in full.
Vocab DescribedVocab(const GgufMetadata& metadata, std::string_view rules, Vocab vocab) {
  vocab.added.clear();
  vocab.merges = ReadMerges(metadata);
  ReadDescription(fmt::format("{}: {}", vocab.name, kTokenizerDescriptionKey), rules, &vocab);
  ReadSpecials(metadata, {}, &vocab);
  return vocab;
}

}  // namespace

Vocab VocabFromGguf(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  const ModelRule& rule = FindModelRule(metadata);
  Vocab vocab;
  vocab.name = Printable(file.name());
  vocab.key_prefix = kPrefix;
  vocab.kind = rule.kind;
  ReadTokens(metadata, &vocab);
  if (const auto rules = metadata.Optional<std::string_view>(kTokenizerDescriptionKey)) {
    return DescribedVocab(metadata, *rules, std::move(vocab));
  }

  std::string_view pre_name = metadata.OptionalOr<std::string_view>(Key("pre"), "");
  if (rule.name == "gemma4" || rule.name == "whitespace") pre_name = rule.name;
  Pretokenizer pre;
  const bool space_prefix = metadata.OptionalOr<bool>(Key("add_space_prefix"), rule.space_prefix);
  switch (rule.kind) {
    case ModelKind::kBpe:
      pre = FindPretokenizer(vocab.name, pre_name);
      vocab.merges = ReadMerges(metadata);
      UsePretokenizer(metadata, pre, &vocab);
      break;
    case ModelKind::kSentencePiece:
      vocab.byte_fallback = vocab.decoding.byte_tokens = true;
      UseSpaceMarks(&vocab, space_prefix);
      break;
    case ModelKind::kUnigram:
      vocab.byte_fallback = vocab.decoding.byte_tokens = true;
      UseUnigram(metadata, space_prefix, &vocab);
      break;
    case ModelKind::kWordPiece:
      UseBert(metadata, &vocab);
      break;
    case ModelKind::kRwkv:
      vocab.decoding.rwkv_escapes = true;
      break;
    case ModelKind::kPlamo2:
      vocab.byte_fallback = vocab.decoding.byte_tokens = true;
      break;
  }
  UseStripping(metadata, pre_name, &vocab);
  ReadSpecials(metadata, rule, &vocab);
  AddAround(metadata, "add_bos_token", rule.add_bos || pre.add_bos, Special::kBos, vocab,
            &vocab.prefix);
  AddAround(metadata, "add_eos_token", rule.add_eos, Special::kEos, vocab, &vocab.suffix);
  if (vocab.suffix.empty()) {
    AddAround(metadata, "add_sep_token", rule.add_separator || pre.add_separator,
              Special::kSeparator, vocab, &vocab.suffix);
  }
  return vocab;
}

}  // namespace lockstep
