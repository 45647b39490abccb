#include "convert/tokenizer_keys.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <unordered_map>

#include "base/error.h"
#include "convert/sentencepiece.h"
#include "text/json_text.h"
#include "text/pretokenizers.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

constexpr uint64_t kMaxTextBytes = 16u << 20;
constexpr uint64_t kMaxModelBytes = 256u << 20;
constexpr int64_t kMaxId = (1 << 24) - 1;

std::string InFolder(const Checkpoint& checkpoint, const char* name) {
  return (std::filesystem::path(checkpoint.folder()) / name).string();
}

// The file's text, or nothing where there is none.
std::optional<std::string> ReadIfThere(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  return ReadFile(path, kMaxTextBytes);
}

std::optional<Config> ConfigIfThere(const std::string& path) {
  const auto text = ReadIfThere(path);
  return text ? std::optional(Config::Parse(path, *text)) : std::nullopt;
}

std::string Key(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

void SetTokens(Vocab& vocab, uint64_t size, Keys& keys) {
  if (vocab.tokens.size() > size) {
    throw Refused("{}: expected at most {} ids, as the embedding has rows, found {}", vocab.name,
                  size, vocab.tokens.size());
  }
  vocab.tokens.resize(size);
  vocab.types.resize(size, TokenType::kUnused);
  std::vector<int32_t> types;
  for (size_t id = 0; id < size; ++id) {
    const bool unnamed = vocab.types[id] == TokenType::kUnused && vocab.tokens[id].empty();
    if (unnamed) vocab.tokens[id] = fmt::format("[PAD{}]", id);
    types.push_back(static_cast<int32_t>(vocab.types[id]));
  }
  keys.SetFull(Key("tokens"), GgufArrayData::OfStrings(std::span<const std::string>(vocab.tokens)));
  keys.SetFull(Key("token_type"), GgufArrayData::Of<int32_t>(types));
}

void SetMerges(const Vocab& vocab, Keys& keys) {
  std::vector<std::string> merges;
  for (const Merge& merge : vocab.merges) merges.push_back(merge.left + " " + merge.right);
  keys.SetFull(Key("merges"), GgufArrayData::OfStrings(std::span<const std::string>(merges)));
}

// Ids that the tokenizer does not name are those of the model's configuration.
void SetSpecials(const Checkpoint& checkpoint, const Vocab& vocab, Keys& keys) {
  static constexpr std::pair<Special, const char*> kConfigured[] = {
      {Special::kBos, "bos_token_id"},
      {Special::kEos, "eos_token_id"},
      {Special::kPad, "pad_token_id"}};
  for (const SpecialName& name : SpecialNames()) {
    int32_t id = vocab.special_id(name.which);
    for (const auto& [which, key] : kConfigured) {
      const auto given = checkpoint.config().Find(key);
      if (id != kNoToken || which != name.which || !given) continue;
      if (given->value().is_array() && given->Items().empty()) continue;
      const JsonNode first = given->value().is_array() ? given->Items().front() : *given;
      id = static_cast<int32_t>(first.Count(std::ssize(vocab.tokens) - 1));
    }
    if (id != kNoToken) keys.SetFull(Key(name.key), static_cast<uint32_t>(id));
  }
}

void SetChatTemplate(const Checkpoint& checkpoint, const std::optional<Config>& settings,
                     Keys& keys) {
  std::optional<std::string> text = ReadIfThere(InFolder(checkpoint, "chat_template.jinja"));
  const auto field = settings ? settings->Find("chat_template") : std::nullopt;
  if (!text && field && field->value().is_string()) text = std::string(field->String());
  // Several templates: [{"name": "default", "template": ...}, ...].
  if (!text && field && field->value().is_array()) {
    for (const JsonNode& item : field->Items()) {
      if (item.At("name").String() == "default") text = std::string(item.At("template").String());
    }
  }
  if (text) keys.SetFull("tokenizer.chat_template", *text);
}

// What llama.cpp calls a kind of vocabulary, and what it needs besides texts and types.
struct ModelName {
  ModelKind kind;
  bool byte_alphabet;
  const char* name;
  void (*add)(const Vocab& vocab, Keys& keys);
};

void SetScores(const Vocab& vocab, Keys& keys) {
  std::vector<float> scores = vocab.scores;
  scores.resize(vocab.tokens.size());
  keys.SetFull(Key("scores"), GgufArrayData::Of<float>(scores));
}

// Merges by rank as merges by score: a token's score is the rank of the merge that makes it first.
void SetRankedScores(const Vocab& vocab, Keys& keys) {
  std::unordered_map<std::string, float> ranks;
  for (size_t i = 0; i < vocab.merges.size(); ++i) {
    ranks.emplace(vocab.merges[i].left + vocab.merges[i].right, -static_cast<float>(i + 1));
  }
  std::vector<float> scores(vocab.tokens.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    const auto rank = ranks.find(vocab.tokens[id]);
    if (rank != ranks.end()) scores[id] = rank->second;
  }
  keys.SetFull(Key("scores"), GgufArrayData::Of<float>(scores));
  SetMerges(vocab, keys);
}

constexpr ModelName kModelNames[] = {
    {ModelKind::kBpe, true, "gpt2", SetMerges},
    {ModelKind::kBpe, false, "llama", SetRankedScores},
    {ModelKind::kUnigram, false, "t5", SetScores},
    {ModelKind::kWordPiece, false, "bert", [](const Vocab&, Keys&) {}},
};

// Whether llama.cpp's keys with pre-tokenizer `pre` say all about a vocabulary.
bool SaidByKeys(const Vocab& vocab, std::string_view pre) {
  const auto around = [&](const std::vector<int32_t>& ids, Special which) {
    return ids.empty() || (ids.size() == 1 && ids[0] == vocab.special_id(which));
  };
  const auto plain = [&](const AddedToken& added) {
    return !added.strip_left && !added.strip_right && !added.single_word &&
           (!added.normalized || vocab.normalizer.empty());
  };
  const Decoding& decoding = vocab.decoding;
  return !pre.empty() && around(vocab.prefix, Special::kBos) &&
         around(vocab.suffix, Special::kEos) && std::ranges::all_of(vocab.added, plain) &&
         decoding.byte_alphabet && !decoding.words && decoding.replacements.empty() &&
         decoding.strip_spaces == 0 && !decoding.strip_first_token;
}

void SetVocabularyKeys(const Checkpoint& checkpoint, const std::string& path,
                       const std::optional<Config>& settings, uint64_t size, Keys& keys) {
  Vocab vocab = VocabFromTokenizerJson(path);
  const auto model = std::ranges::find_if(kModelNames, [&](const ModelName& row) {
    return row.kind == vocab.kind && row.byte_alphabet == vocab.byte_alphabet;
  });
  if (model == std::end(kModelNames)) {
    throw Refused("{}: model: expected byte-level BPE or one of other texts, found neither",
                  vocab.name);
  }
  const std::string_view pre = MatchPretokenizer(vocab);
  keys.SetFull(Key("model"), std::string(model->name));
  if (model->byte_alphabet) keys.SetFull(Key("pre"), std::string(pre.empty() ? "default" : pre));
  SetTokens(vocab, size, keys);
  model->add(vocab, keys);
  SetSpecials(checkpoint, vocab, keys);
  const bool bos = !vocab.prefix.empty() || (settings && settings->BoolOr("add_bos_token", false));
  keys.SetFull(Key("add_bos_token"), bos);
  keys.SetFull(Key("add_eos_token"), !vocab.suffix.empty());
  if (!SaidByKeys(vocab, pre))
    keys.SetFull(std::string(kTokenizerDescriptionKey), DescribeTokenizer(path));
}

// Tokens that the folder adds to a SentencePiece model.
void AddTokens(const Checkpoint& checkpoint, const std::optional<Config>& settings, Vocab* vocab) {
  const auto set = [&](int64_t id, std::string_view text, TokenType type) {
    const auto at = static_cast<size_t>(id);
    if (at >= vocab->tokens.size()) {
      vocab->tokens.resize(at + 1);
      vocab->types.resize(at + 1, TokenType::kUnused);
    }
    vocab->tokens[at] = text;
    vocab->types[at] = type;
  };
  if (const auto added = ConfigIfThere(InFolder(checkpoint, "added_tokens.json"))) {
    for (const auto& [text, id] : added->members()) {
      const JsonNode node(id, "added_tokens.json: " + Printable(text));
      set(node.Count(kMaxId), text, TokenType::kUserDefined);
    }
  }
  const auto listed = settings ? settings->Find("added_tokens_decoder") : std::nullopt;
  if (!listed) return;
  for (const auto& [id, token] : listed->Object()) {
    int64_t number = -1;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    if (error != std::errc() || end != id.data() + id.size() || number < 0 || number > kMaxId) {
      throw Refused("{}: expected ids, found {}", listed->path(), Printable(id));
    }
    const JsonNode node(token, listed->path());
    const bool special = node.BoolOr("special", false);
    set(number, node.At("content").String(),
        special ? TokenType::kControl : TokenType::kUserDefined);
  }
}

void SetPieceKeys(const Checkpoint& checkpoint, const std::string& path,
                  const std::optional<Config>& settings, uint64_t size, Keys& keys) {
  const SentencePieces pieces = ParseSentencePieces(path, ReadFile(path, kMaxModelBytes));
  Vocab vocab;
  vocab.name = Printable(path, 4096);
  vocab.tokens = pieces.texts;
  vocab.types = pieces.types;
  vocab.scores = pieces.scores;
  AddTokens(checkpoint, settings, &vocab);
  vocab.special_id(Special::kUnknown) = pieces.unknown;
  vocab.special_id(Special::kBos) = pieces.bos;
  vocab.special_id(Special::kEos) = pieces.eos;
  vocab.special_id(Special::kPad) = pieces.pad;
  keys.SetFull(Key("model"), std::string(pieces.unigram ? "t5" : "llama"));
  keys.SetFull(Key("pre"), std::string("default"));
  SetTokens(vocab, size, keys);
  SetScores(vocab, keys);
  SetSpecials(checkpoint, vocab, keys);
  keys.SetFull(Key("add_space_prefix"), pieces.space_before);
  keys.SetFull(Key("add_bos_token"), settings ? settings->BoolOr("add_bos_token", true) : true);
  keys.SetFull(Key("add_eos_token"), settings ? settings->BoolOr("add_eos_token", false) : false);
  if (!pieces.unigram) return;
  keys.SetFull(Key("remove_extra_whitespaces"), pieces.collapse_spaces);
  if (pieces.charsmap.empty()) return;
  const std::vector<uint8_t> map(pieces.charsmap.begin(), pieces.charsmap.end());
  keys.SetFull(Key("precompiled_charsmap"), GgufArrayData::Of<uint8_t>(map));
}

}  // namespace

bool LacksTokenizer(const Checkpoint& checkpoint) {
  return !std::filesystem::exists(InFolder(checkpoint, "tokenizer.json")) &&
         !std::filesystem::exists(InFolder(checkpoint, "tokenizer.model"));
}

void SetTokenizerKeys(const Checkpoint& checkpoint, uint64_t size, Keys& keys) {
  const std::string json = InFolder(checkpoint, "tokenizer.json");
  const std::string pieces = InFolder(checkpoint, "tokenizer.model");
  const auto settings = ConfigIfThere(InFolder(checkpoint, "tokenizer_config.json"));
  std::error_code ignored;
  if (std::filesystem::exists(json, ignored)) {
    SetVocabularyKeys(checkpoint, json, settings, size, keys);
  } else if (std::filesystem::exists(pieces, ignored)) {
    SetPieceKeys(checkpoint, pieces, settings, size, keys);
  } else {
    throw Refused("{}: expected tokenizer.json or tokenizer.model, found neither",
                  Printable(checkpoint.folder(), 4096));
  }
  SetChatTemplate(checkpoint, settings, keys);
}

void SetSamplingKeys(const Checkpoint& checkpoint, Keys& keys) {
  const auto config = ConfigIfThere(InFolder(checkpoint, "generation_config.json"));
  if (!config) return;
  static constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"temperature", "general.sampling.temp"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  for (const auto& [name, key] : kNumbers) {
    if (const auto number = config->OptionalNumber(name)) {
      keys.SetFull(key, static_cast<float>(*number));
    }
  }
  if (const auto count = config->OptionalCount("top_k")) {
    keys.SetFull("general.sampling.top_k", static_cast<uint32_t>(*count));
  }
}

}  // namespace lockstep
