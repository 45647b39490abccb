#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/json_text.h"

namespace lockstep {
namespace {

namespace json = boost::json;

const char kFolder[] = LOCKSTEP_SOURCE_DIR "/../shared/templates/templates/";

json::array Messages(std::string_view text) { return ParseJson("messages", text).get_array(); }

ChatTemplate Make(std::string_view source) { return ChatTemplate("test", source, {"<s>", "</s>"}); }

std::string RenderText(const ChatTemplate& chat, std::string_view messages) {
  ChatRequest request;
  request.messages = Messages(messages);
  return chat.Render(request);
}

std::string ErrorOf(const ChatTemplate& chat, std::string_view messages) {
  try {
    RenderText(chat, messages);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRefused);
    return error.what();
  }
  return "";
}

TEST(ChatTemplate, PassesTokensMessagesToolsAndVariables) {
  ChatTemplate chat = Make(
      "{{ bos_token }}{{ eos_token }}{{ messages[0].content }}{{ tools | tojson }}{{ "
      "add_generation_prompt }}{{ x }}");
  ChatRequest request;
  request.messages = Messages(R"([{"role": "user", "content": "hi"}])");
  request.variables = {{"x", 0.8}};
  EXPECT_EQ(chat.Render(request), "<s></s>hinullTrue0.8");
  request.tools = {json::object{{"b", 1}, {"a", 2}}};
  request.add_generation_prompt = false;
  EXPECT_EQ(chat.Render(request), "<s></s>hi[{\"b\": 1, \"a\": 2}]False0.8");
}

TEST(ChatTemplate, B023SlicesWithAStepRenderAndBadTemplatesFailAtLoad) {
  ChatTemplate chat =
      Make("{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.content }};{% endfor %}");
  EXPECT_EQ(
      RenderText(chat, R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])"),
      "0b;1a;");
  for (std::string_view source :
       {"{{ messages[::-1 }}", "{% for m in messages %}", "{{ messages | nope }}"}) {
    EXPECT_THROW(Make(source), Error) << source;
  }
}

TEST(ChatTemplate, B026StringMethodsOnEarlierAnswersAndNullContentRender) {
  ChatTemplate chat = Make(
      "{% for m in messages %}{% if m.content is string %}{{ "
      "m.content.split('</think>')[-1].lstrip('\\n') }};"
      "{% endif %}{% if m.content %}+{% endif %}{% endfor %}");
  EXPECT_EQ(RenderText(chat, R"([{"role": "user", "content": "q"},
                                 {"role": "assistant", "content": "<think>a</think>\n\nb"}])"),
            "q;+b;+");
  // Null content is false, not an error.
  ChatRequest request;
  request.messages = Messages(R"([{"role": "assistant", "content": null, "tool_calls": []}])");
  request.adapt = false;
  EXPECT_EQ(chat.Render(request), "");
}

TEST(ChatTemplate, B028ProbesSurviveTemplatesThatCheckIdsAndRequestsCarryTheirMessage) {
  ChatTemplate chat = Make(
      "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
      "{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
      "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% "
      "endif %}"
      "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{{ m.content }}{% "
      "endfor %}");
  EXPECT_TRUE(chat.capabilities().tools);
  EXPECT_TRUE(chat.capabilities().tool_calls);
  std::string error = ErrorOf(chat, R"([{"role": "assistant", "content": "", "tool_calls":
      [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]}])");
  EXPECT_TRUE(error.ends_with("Tool call IDs should be alphanumeric strings with length 9!"))
      << error;
  EXPECT_TRUE(error.starts_with("test:1:")) << error;

  ChatTemplate refusing =
      Make("{% if tools %}{{ raise_exception('no tools') }}{% endif %}{{ messages[0].content }}");
  EXPECT_FALSE(refusing.capabilities().tools);
  EXPECT_TRUE(refusing.capabilities().text_content);
}

TEST(ChatTemplate, B029TheThinkingSwitchIsListedAndRendered) {
  ChatTemplate chat =
      Make("{% if enable_thinking is defined and not enable_thinking %}<off>{% endif %}go");
  EXPECT_EQ(chat.capabilities().thinking_switch, "enable_thinking");
  ChatRequest request;
  EXPECT_EQ(chat.Render(request), "go");
  request.thinking = true;
  EXPECT_EQ(chat.Render(request), "go");
  request.thinking = false;
  EXPECT_EQ(chat.Render(request), "<off>go");

  ChatTemplate other = Make("{% if thinking %}<think>{% endif %}");
  EXPECT_EQ(other.capabilities().thinking_switch, "thinking");
  EXPECT_EQ(Make("{{ messages[0].thinking }}").capabilities().thinking_switch, "");
  EXPECT_EQ(Make("{% for thinking in messages %}{{ thinking }}{% endfor %}")
                .capabilities()
                .thinking_switch,
            "");
}

TEST(ChatTemplate, AdaptsContentToTheFormTheTemplateTakes) {
  ChatTemplate texts = Make("{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}");
  EXPECT_FALSE(texts.capabilities().content_parts);
  EXPECT_EQ(RenderText(texts, R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                  {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null}])"),
            "[ab][]");
  EXPECT_NE(ErrorOf(texts, R"([{"role": "user", "content": [{"type": "image"}]}])"), "");

  ChatTemplate parts =
      Make("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}");
  EXPECT_FALSE(parts.capabilities().text_content);
  EXPECT_EQ(RenderText(parts, R"([{"role": "user", "content": "plain"}])"), "plain");
}

TEST(ChatTemplate, AdaptsArgumentsToTheFormTheTemplateTakes) {
  const char kCall[] =
      R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function",
      "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2.50]}"}}]}])";
  const char kLoop[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const char kEnd[] = "{% endfor %}{% endfor %}";
  ChatTemplate objects = Make(std::string(kLoop) + "{{ c.function.arguments | tojson }}" + kEnd);
  EXPECT_TRUE(objects.capabilities().object_arguments);
  EXPECT_EQ(RenderText(objects, kCall), R"({"b": 1, "a": [2.5]})");
  ChatTemplate texts = Make(std::string(kLoop) + "{{ '<' + c.function.arguments + '>' }}" + kEnd);
  EXPECT_FALSE(texts.capabilities().object_arguments);
  EXPECT_EQ(RenderText(texts, kCall), R"(<{"b": 1, "a": [2.50]}>)");
  ChatTemplate printed = Make(std::string(kLoop) + "{{ c.function.arguments }}" + kEnd);
  EXPECT_FALSE(printed.capabilities().object_arguments);
}

struct CapabilityRow {
  std::string_view file;
  bool system;
  bool tools;
  bool calls;
  bool parallel;
  bool objects;
  std::string_view thinking;
};
constexpr CapabilityRow kCapabilities[] = {
    {"Qwen-Qwen3-0.6B", true, true, true, true, true, "enable_thinking"},
    {"Qwen-Qwen2.5-7B-Instruct", true, true, true, true, true, ""},
    {"Qwen3-Coder", true, true, true, true, true, ""},
    {"google-gemma-2-2b-it", false, false, false, false, false, ""},
    {"meta-llama-Llama-3.1-8B-Instruct", true, true, true, false, true, ""},
    {"mistralai-Mistral-Nemo-Instruct-2407", true, true, true, true, true, ""},
    {"deepseek-ai-DeepSeek-V3.1", true, false, true, true, true, "enable_thinking"},
    {"microsoft-Phi-3.5-mini-instruct", true, false, false, false, false, ""},
    {"GLM-4.6", true, true, true, true, true, "enable_thinking"},
    {"openai-gpt-oss-120b", true, true, true, false, true, ""},
};

TEST(ChatTemplate, ProbesFindWhatRealTemplatesSupport) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no shared templates here";
  for (const CapabilityRow& row : kCapabilities) {
    SCOPED_TRACE(row.file);
    std::string source =
        ReadFile(std::string(kFolder) + std::string(row.file) + ".jinja", 1u << 20);
    ChatTemplate chat = Make(source);
    const ChatCapabilities& found = chat.capabilities();
    EXPECT_EQ(found.system_role, row.system);
    EXPECT_EQ(found.tools, row.tools);
    EXPECT_EQ(found.tool_calls, row.calls);
    EXPECT_EQ(found.parallel_tool_calls, row.parallel);
    EXPECT_EQ(found.object_arguments, row.objects);
    EXPECT_EQ(found.thinking_switch, row.thinking);
  }
}

TEST(ChatTemplate, EveryRealTemplateRendersAPlainTurn) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no shared templates here";
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    ChatTemplate chat("real", ReadFile(entry.path().string(), 1u << 20), {"<s>", "</s>"});
    ChatRequest request;
    request.messages =
        Messages(R"([{"role": "user", "content": [{"type": "text", "text": "needle"}]}])");
    if (entry.path().filename() == "fireworks-ai-llama-3-firefunction-v2.jinja") {
      request.variables = {{"functions", "[]"},
                           {"datetime", "now"}};  // it reads these and nothing sets them
    }
    std::string prompt;
    try {
      prompt = chat.Render(request);
    } catch (const Error& error) {
      prompt = error.what();
    }
    EXPECT_NE(prompt.find("needle"), std::string::npos)
        << entry.path().filename() << ": " << prompt;
  }
}

TEST(ChatTemplate, RefusesMessagesThatAreNoConversationWithoutCrashing) {
  ChatTemplate chat = Make("{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
  for (std::string_view messages :
       {"[1]", "[null]", "[[]]", R"([{"role": 1, "content": "x"}])", R"([{"content": "x"}])",
        R"([{"role": "user", "content": [1, {"type": 5}]}])",
        R"([{"role": "a", "tool_calls": [1, {"function": 3}], "content": null}, {}])"}) {
    EXPECT_NE(ErrorOf(chat, messages), "") << messages;
  }
}

}  // namespace
}  // namespace lockstep
