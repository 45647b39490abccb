#include <charconv>
#include <filesystem>

#include "apps/command.h"
#include "apps/input.h"
#include "apps/terminal.h"
#include "base/interrupt.h"
#include "gguf/gguf_file.h"
#include "text/json_text.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

Tokenizer OpenTokenizer(const std::string& path) {
  std::error_code ignored;
  if (path.ends_with(".json") || std::filesystem::is_directory(path, ignored)) {
    return Tokenizer::FromTokenizerJson(path);
  }
  return Tokenizer::FromGguf(GgufFile::Open(path));
}

// Ids as people and programs write them: digits with blanks, commas or brackets between.
std::vector<int32_t> ParseIds(std::string_view text) {
  std::vector<int32_t> ids;
  constexpr std::string_view kBetween = " \t\r\n,[]";
  while (true) {
    size_t start = text.find_first_not_of(kBetween);
    if (start == std::string_view::npos) return ids;
    text.remove_prefix(start);
    std::string_view word = text.substr(0, text.find_first_of(kBetween));
    int32_t id = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw Refused("tokenize: expected token ids, found '{}' as id {}", Printable(word),
                    ids.size());
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

std::vector<int32_t> GivenIds(const OptionValues& options) {
  return options.Given(Opt::kTokens) ? ReadTokenIds(options) : ParseIds(ReadInputText(options));
}

std::string IdList(std::span<const int32_t> ids) {
  std::string text = "[";
  for (size_t i = 0; i < ids.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", ids[i]);
  return text + "]";
}

// {"tokens": [{"id": 1, "piece": "a"}, ...], "count": 1}; pieces that are no whole characters have
// U+FFFD.
void PrintJson(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string out;
  const JsonStyle style;
  JsonWriter json(out, style);
  json.Begin('{');
  json.Key("tokens");
  json.Begin('[');
  for (int32_t id : ids) {
    ThrowIfInterrupted();
    json.Begin('{');
    json.Key("id");
    json.Literal(fmt::format("{}", id));
    json.Key("piece");
    json.String(ReplaceInvalidUtf8(tokenizer.BytesOf(id)));
    json.End('}');
  }
  json.End(']');
  json.Key("count");
  json.Literal(fmt::format("{}", ids.size()));
  json.End('}');
  Print(out + "\n");
}

void PrintTable(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  for (int32_t id : ids) {
    ThrowIfInterrupted();
    Print(fmt::format("{:>6} -> '{}'\n", id, Printable(tokenizer.BytesOf(id), 4096)));
  }
}

int Detokenize(const OptionValues& options, const Tokenizer& tokenizer) {
  std::string text = tokenizer.Decode(GivenIds(options), {.skip_special = false, .at_start = true});
  if (!options.Get<bool>(Opt::kJson)) {
    // Nothing added: the text can be compared byte for byte.
    Print(text);
    return 0;
  }
  std::string out;
  const JsonStyle style;
  JsonWriter json(out, style);
  json.Begin('{');
  json.Key("text");
  json.String(text);
  json.End('}');
  Print(out + "\n");
  return 0;
}

}  // namespace

int RunTokenize(const OptionValues& options, Positional) {
  Tokenizer tokenizer = OpenTokenizer(options.Require<std::string>(Opt::kModel));
  if (options.Get<bool>(Opt::kDetokenize)) return Detokenize(options, tokenizer);

  std::vector<int32_t> ids = tokenizer.Encode(
      ReadInputText(options), {.add_special = options.Get<bool>(Opt::kBos),
                               .parse_special = options.Get<bool>(Opt::kParseSpecial)});
  if (options.Get<bool>(Opt::kJson)) {
    PrintJson(tokenizer, ids);
  } else if (options.Get<bool>(Opt::kIds)) {
    Print(IdList(ids) + "\n");
  } else {
    PrintTable(tokenizer, ids);
  }
  if (options.Get<bool>(Opt::kShowCount) && !options.Get<bool>(Opt::kJson)) {
    Print(fmt::format("{} tokens\n", ids.size()));
  }
  return 0;
}

}  // namespace lockstep
