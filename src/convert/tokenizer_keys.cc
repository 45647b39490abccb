#include "convert/tokenizer_keys.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "text/json_text.h"
#include "text/pretokenizers.h"
#include "text/tokenizer.h"

namespace lockstep {
namespace {

constexpr uint64_t kMaxTextBytes = 16u << 20;

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
    if (vocab.types[id] == TokenType::kUnused) vocab.tokens[id] = fmt::format("[PAD{}]", id);
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
      const JsonNode first = given->value().is_array() ? given->Items().at(0) : *given;
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

}  // namespace

void SetTokenizerKeys(const Checkpoint& checkpoint, uint64_t size, Keys& keys) {
  const std::string path = InFolder(checkpoint, "tokenizer.json");
  Vocab vocab = VocabFromTokenizerJson(path);
  const std::string_view pre = MatchPretokenizer(vocab);
  if (pre.empty()) throw Refused("{}: pre_tokenizer: expected a known one", Printable(path, 4096));
  keys.SetFull(Key("model"), std::string("gpt2"));
  keys.SetFull(Key("pre"), std::string(pre));
  SetTokens(vocab, size, keys);
  SetMerges(vocab, keys);
  SetSpecials(checkpoint, vocab, keys);
  const auto settings = ConfigIfThere(InFolder(checkpoint, "tokenizer_config.json"));
  const bool bos = !vocab.prefix.empty() || (settings && settings->BoolOr("add_bos_token", false));
  keys.SetFull(Key("add_bos_token"), bos);
  if (!vocab.suffix.empty()) keys.SetFull(Key("add_eos_token"), true);
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
