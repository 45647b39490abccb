#include "text/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "text/json_text.h"

namespace lockstep {
namespace {

namespace json = boost::json;

// Words that no template prints by itself.
constexpr char kText[] = "probe_text";
constexpr char kSecond[] = "probe_second";
constexpr char kToolName[] = "probe_tool";
constexpr char kKey[] = "probe_key";
constexpr char kValue[] = "probe_value";

bool Has(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

json::object Message(std::string_view role, json::value content) {
  return {{"role", role}, {"content", std::move(content)}};
}

json::array TextParts(std::string_view text) { return {{{"type", "text"}, {"text", text}}}; }

json::object ToolDefinition() {
  json::object parameters = {
      {"type", "object"},
      {"properties", {{kKey, {{"type", "string"}, {"description", "a word"}}}}},
      {"required", json::array{kKey}}};
  json::object function = {
      {"name", kToolName}, {"description", "a tool"}, {"parameters", std::move(parameters)}};
  return {{"type", "function"}, {"function", std::move(function)}};
}

enum class ArgumentForm { kObject, kText };

// Ids have nine letters and digits: some templates refuse any other length.
json::object ToolCall(std::string_view id, std::string_view name, ArgumentForm form) {
  json::value arguments = json::object{{kKey, kValue}};
  if (form == ArgumentForm::kText) arguments = json::value(JsonText(arguments));
  return {{"id", id},
          {"type", "function"},
          {"function", json::object{{"name", name}, {"arguments", std::move(arguments)}}}};
}

// Runs small conversations through a template.
class Prober {
 public:
  explicit Prober(const ChatTemplate& chat) : chat_(chat) {}

  bool RendersPlainText() const {
    return Has(Render({Message("user", kText)}), kText) ||
           Has(Render({Message("user", TextParts(kText))}), kText);
  }

  ChatCapabilities Run() const {
    ChatCapabilities found;
    ProbeContent(found);
    ProbeTools(found);
    ProbeToolCalls(found);
    json::object answer = Message("assistant", "ok");
    answer["reasoning_content"] = kText;
    found.reasoning_content =
        Has(Render({Message("user", "hi"), answer}), kText) ||
        Has(Render({Message("user", "hi"), answer, Message("user", "go on")}), kText);
    found.reasoning_effort = chat_.jinja().reads().count("reasoning_effort") > 0;
    found.thinking_switch = ThinkingSwitch();
    return found;
  }

 private:
  // The prompt, empty where the template refuses.
  std::string Render(json::array messages, bool tools = false, json::object variables = {}) const {
    ChatRequest request;
    request.messages = std::move(messages);
    if (tools) request.tools = {ToolDefinition()};
    request.variables = std::move(variables);
    request.adapt = false;
    try {
      return chat_.Render(request);
    } catch (const Error&) {
      return "";
    }
  }

  void ProbeContent(ChatCapabilities& found) const {
    found.text_content = Has(Render({Message("user", kText)}), kText);
    // A template that just prints the list shows its keys.
    std::string parts = Render({Message("user", TextParts(kText))});
    found.content_parts = Has(parts, kText) && !Has(parts, "'type'") && !Has(parts, "\"type\"");
    found.system_role =
        Has(Render({Message("system", kText), Message("user", "hi")}), kText) ||
        Has(Render({Message("system", TextParts(kText)), Message("user", TextParts("hi"))}), kText);
  }

  void ProbeTools(ChatCapabilities& found) const {
    found.tools =
        Has(Render({Message("user", "hi")}, true), kToolName) ||
        Has(Render({Message("system", "be kind"), Message("user", "hi")}, true), kToolName) ||
        Has(Render({Message("user", TextParts("hi"))}, true), kToolName);
  }

  // A conversation with one answer that calls tools, and their results.
  std::string RenderCalls(ArgumentForm form, const json::value& content, bool two) const {
    json::array calls = {ToolCall("probe0001", kToolName, form)};
    if (two) calls.push_back(ToolCall("probe0002", kSecond, form));
    json::object answer = Message("assistant", content);
    answer["tool_calls"] = std::move(calls);
    json::array messages = {Message("user", "hi"), std::move(answer)};
    for (int i = 0; i < (two ? 2 : 1); ++i) {
      json::object result = Message("tool", kText);
      result["tool_call_id"] = i == 0 ? "probe0001" : "probe0002";
      result["name"] = i == 0 ? kToolName : kSecond;
      messages.push_back(std::move(result));
    }
    return Render(std::move(messages), true);
  }

  void ProbeToolCalls(ChatCapabilities& found) const {
    auto calls = [](const std::string& prompt) { return Has(prompt, kKey) && Has(prompt, kValue); };
    std::string as_object = RenderCalls(ArgumentForm::kObject, "", false);
    std::string as_text = RenderCalls(ArgumentForm::kText, "", false);
    bool object_works = calls(as_object);
    bool text_works = calls(as_text);
    // Each form can be printed in a way that shows it was not meant: a dict as Python writes it, a
    // text quoted again.
    bool object_clean = object_works && !Has(as_object, fmt::format("'{}'", kKey));
    bool text_clean = text_works && Has(as_text, fmt::format("\"{}\"", kKey));
    found.tool_calls = object_works || text_works;
    found.object_arguments = object_clean || (object_works && !text_clean);
    ArgumentForm form = found.object_arguments ? ArgumentForm::kObject : ArgumentForm::kText;
    found.tool_results = Has(found.object_arguments ? as_object : as_text, kText);
    std::string null_content = RenderCalls(form, nullptr, false);
    found.null_content = calls(null_content) && !Has(null_content, "None");
    found.parallel_tool_calls = found.tool_calls && Has(RenderCalls(form, "", true), kSecond);
  }

  std::string ThinkingSwitch() const {
    for (const char* name : {"enable_thinking", "thinking"}) {
      if (chat_.jinja().reads().count(name) == 0) continue;
      // The usual name is believed; the other is a common word and must change a prompt.
      if (std::string_view(name) == "enable_thinking") return name;
      json::array messages = {Message("user", "hi")};
      if (Render(messages, false, {{name, true}}) != Render(messages, false, {{name, false}}))
        return name;
    }
    return "";
  }

  const ChatTemplate& chat_;
};

// ---- adapting

bool IsTextPart(const json::value& part) {
  const json::object* object = part.if_object();
  const json::value* type = object != nullptr ? object->if_contains("type") : nullptr;
  const json::value* text = object != nullptr ? object->if_contains("text") : nullptr;
  return type != nullptr && text != nullptr && type->is_string() && text->is_string() &&
         type->get_string() == "text";
}

void AdaptContent(json::object& message, const ChatCapabilities& capabilities) {
  json::value* content = message.if_contains("content");
  if (content == nullptr) return;
  if (content->is_null() && !capabilities.null_content) *content = "";
  if (content->is_string() && !capabilities.text_content && capabilities.content_parts) {
    *content = TextParts(content->get_string());
  }
  const json::array* parts = content->if_array();
  if (parts == nullptr || capabilities.content_parts) return;
  if (!std::all_of(parts->begin(), parts->end(), IsTextPart)) return;
  json::string text;
  for (const json::value& part : *parts) text += part.get_object().at("text").get_string();
  *content = std::move(text);
}

void AdaptArguments(json::object& call, const ChatCapabilities& capabilities) {
  json::value* arguments = call.if_contains("arguments");
  if (arguments == nullptr) return;
  if (arguments->is_object() && !capabilities.object_arguments) {
    *arguments = json::value(JsonText(*arguments));
  } else if (arguments->is_string() && capabilities.object_arguments) {
    try {
      json::value parsed = ParseJson("arguments", arguments->get_string());
      if (parsed.is_object()) *arguments = std::move(parsed);
    } catch (const Error&) {
      // What a model wrote need not be JSON; the template gets it as it is.
    }
  }
}

void AdaptCalls(json::object& message, const ChatCapabilities& capabilities) {
  json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array() || !capabilities.tool_calls) return;
  for (json::value& call : calls->get_array()) {
    json::object* object = call.if_object();
    if (object == nullptr) continue;
    json::value* function = object->if_contains("function");
    AdaptArguments(function != nullptr && function->is_object() ? function->get_object() : *object,
                   capabilities);
  }
}

}  // namespace

json::array AdaptMessages(const json::array& messages, const ChatCapabilities& capabilities) {
  json::array adapted = messages;
  for (json::value& message : adapted) {
    json::object* object = message.if_object();
    if (object == nullptr) continue;
    AdaptContent(*object, capabilities);
    AdaptCalls(*object, capabilities);
  }
  return adapted;
}

ChatTemplate::ChatTemplate(std::string name, std::string_view source, ChatTokens tokens,
                           const JinjaLimits& limits)
    : tokens_(std::move(tokens)), template_(std::move(name), source, limits) {
  // transformers passes None for what a request lacks; templates written for requests that have
  // tools raise on it.
  Prober prober(*this);
  if (!prober.RendersPlainText()) {
    absent_is_none_ = false;
    absent_is_none_ = !prober.RendersPlainText();
  }
  capabilities_ = prober.Run();
}

std::string ChatTemplate::Render(const ChatRequest& request) const {
  json::object context;
  context["messages"] =
      request.adapt ? AdaptMessages(request.messages, capabilities_) : request.messages;
  if (!request.tools.empty()) {
    context["tools"] = request.tools;
  } else if (absent_is_none_) {
    context["tools"] = nullptr;
    context["documents"] = nullptr;
  }
  context["add_generation_prompt"] = request.add_generation_prompt;
  context["bos_token"] = tokens_.bos;
  context["eos_token"] = tokens_.eos;
  if (request.thinking && !capabilities_.thinking_switch.empty()) {
    context[capabilities_.thinking_switch] = *request.thinking;
  }
  for (const auto& variable : request.variables) context[variable.key()] = variable.value();
  try {
    return template_.Render(jinja::Value::FromJson(context), request.now ? &*request.now : nullptr);
  } catch (const jinja::Fault& fault) {
    throw Refused("{}: messages: {}", Printable(template_.name()), Printable(fault.message));
  }
}

}  // namespace lockstep
