#include "apps/conversation.h"

#include <algorithm>

#include "apps/input.h"
#include "base/log.h"
#include "text/json_text.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::optional<std::string> TextKey(const Model& model, std::string_view key) {
  const std::optional<GgufValue> value = model.file().metadata().Find(key);
  const auto* text = value ? std::get_if<std::string_view>(&value->data) : nullptr;
  return text == nullptr ? std::nullopt : std::optional<std::string>(*text);
}

std::string SpecialText(const Tokenizer& tokenizer, Special which) {
  const std::optional<int32_t> id = tokenizer.special(which);
  return id ? std::string(tokenizer.TextOf(*id)) : "";
}

struct TemplateSource {
  std::string name;
  std::string text;
};

TemplateSource FindTemplate(const OptionValues& options, const Model& model) {
  const bool by_text = options.Given(Opt::kChatTemplate);
  const bool by_file = options.Given(Opt::kChatTemplateFile);
  if (by_file &&
      (!by_text || options.source(Opt::kChatTemplateFile) > options.source(Opt::kChatTemplate))) {
    const std::string& path = options.Get<std::string>(Opt::kChatTemplateFile);
    return {path, ReadFileOrStdin(path)};
  }
  const std::string file = model.file().name();
  if (!by_text) {
    std::optional<std::string> own = TextKey(model, kTemplateKey);
    if (own) return {file, *own};
    throw Refused(
        "{}: {}: expected a chat template, found none; give one with --chat-template or "
        "--chat-template-file",
        Printable(file, 4096), kTemplateKey);
  }
  const std::string& given = options.Get<std::string>(Opt::kChatTemplate);
  if (given.find('{') != std::string::npos) return {"--chat-template", given};
  std::optional<std::string> named = TextKey(model, fmt::format("{}.{}", kTemplateKey, given));
  if (named) return {fmt::format("{}: {}", file, given), *named};
  throw Refused("--chat-template: expected Jinja or the name of a template in {}, found '{}'",
                Printable(file, 4096), Printable(given));
}

std::string ReadSystem(const OptionValues& options) {
  if (options.Given(Opt::kSystemPromptFile)) {
    return ReadFileOrStdin(options.Get<std::string>(Opt::kSystemPromptFile));
  }
  return options.GetOr<std::string>(Opt::kSystemPrompt, "");
}

boost::json::object ReadVariables(const OptionValues& options) {
  constexpr std::string_view kName = "--chat-template-kwargs";
  boost::json::object variables;
  if (options.Given(Opt::kChatTemplateKwargs)) {
    const boost::json::value value =
        ParseJson(kName, options.Get<std::string>(Opt::kChatTemplateKwargs));
    if (!value.is_object()) throw Refused("{}: expected a JSON object", kName);
    variables = value.get_object();
  }
  if (options.Given(Opt::kReasoningEffort)) {
    variables["reasoning_effort"] = options.Get<std::string>(Opt::kReasoningEffort);
  }
  return variables;
}

}  // namespace

ChatTemplate ReadChatTemplate(const OptionValues& options, const Model& model) {
  const TemplateSource source = FindTemplate(options, model);
  const Tokenizer& tokenizer = model.tokenizer();
  return ChatTemplate(
      source.name, source.text,
      {SpecialText(tokenizer, Special::kBos), SpecialText(tokenizer, Special::kEos)});
}

Conversation::Conversation(const OptionValues& options, const Model& model)
    : tokenizer_(model.tokenizer()),
      template_(ReadChatTemplate(options, model)),
      system_(ReadSystem(options)),
      variables_(ReadVariables(options)) {
  const std::string& reasoning = options.Get<std::string>(Opt::kReasoning);
  if (reasoning != "auto") thinking_ = reasoning == "on";
}

void Conversation::Add(std::string_view role, std::string_view text) {
  messages_.push_back(boost::json::object{{"role", role}, {"content", ReplaceInvalidUtf8(text)}});
}

bool Conversation::RemoveLast(std::string_view role) {
  if (messages_.empty() || messages_.back().at("role").as_string() != role) return false;
  messages_.pop_back();
  return true;
}

std::string Conversation::Prompt() const {
  ChatRequest request;
  request.messages = messages_;
  if (!system_.empty() && template_.capabilities().system_role) {
    request.messages.insert(
        request.messages.begin(),
        boost::json::object{{"role", "system"}, {"content", ReplaceInvalidUtf8(system_)}});
  } else if (!system_.empty() && !messages_.empty()) {
    // The template has no place for it: the first message is the next best.
    boost::json::value& content = request.messages[0].at("content");
    content = ReplaceInvalidUtf8(system_) + "\n\n" + std::string(content.as_string());
  }
  request.thinking = thinking_;
  request.variables = variables_;
  return template_.Render(request);
}

std::vector<int32_t> Conversation::Encode(const std::string& prompt) const {
  std::vector<int32_t> tokens = tokenizer_.Encode(prompt, {.parse_special = true});
  const std::span<const int32_t> prefix = tokenizer_.prefix();
  const bool there =
      tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
  if (!there) tokens.insert(tokens.begin(), prefix.begin(), prefix.end());
  return tokens;
}

}  // namespace lockstep
