// A model's chat template: from a conversation to the text of its prompt, and what the template can
// say.
#pragma once

#include <boost/json.hpp>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja.h"

namespace lockstep {

// What a template was seen to do with small conversations, and which variables it reads. A template
// that raises on a probe does not support what the probe asks for.
struct ChatCapabilities {
  bool system_role = false;
  bool tools = false;                // definitions of the request's tools reach the prompt
  bool tool_calls = false;           // so do calls in earlier answers
  bool parallel_tool_calls = false;  // more than one in an answer
  bool tool_results = false;         // and messages of role "tool"
  bool text_content = false;         // `content` may be a string
  bool content_parts = false;        // `content` may be a list of {"type": "text", "text": ...}
  bool null_content = false;         // `content` may be null beside tool calls
  bool object_arguments = false;   // arguments of a call are wanted as an object, not as JSON text
  bool reasoning_content = false;  // reasoning of an earlier answer is read from its own field
  bool reasoning_effort = false;   // reads "reasoning_effort"
  std::string
      thinking_switch;  // the boolean that turns thinking on and off, empty where there is none
};

struct ChatTokens {
  std::string bos;
  std::string eos;
};

struct ChatRequest {
  boost::json::array messages;  // OpenAI's shape
  boost::json::array tools;
  bool add_generation_prompt = true;
  std::optional<bool> thinking;   // ignored where the template has no switch
  boost::json::object variables;  // more for the template; they win over those above
  std::optional<std::tm> now;     // absent: local time
  bool adapt = true;              // rewrite messages into the form that the template takes
};

// A parsed and probed template. Const members may be called from several threads.
class ChatTemplate {
 public:
  // Throws Refused where the source is no template: there is no other template to fall back to.
  ChatTemplate(std::string name, std::string_view source, ChatTokens tokens,
               const JinjaLimits& limits = {});

  // The prompt. Throws Refused, with the template's own words where it raises.
  std::string Render(const ChatRequest& request) const;

  const ChatCapabilities& capabilities() const { return capabilities_; }
  const JinjaTemplate& jinja() const { return template_; }

 private:
  ChatTokens tokens_;
  JinjaTemplate template_;
  bool absent_is_none_ = true;  // `tools` is none, not undefined, where a request has none
  ChatCapabilities capabilities_;
};

// The messages with each content, and each call's arguments, in a form that a template of these
// capabilities takes.
boost::json::array AdaptMessages(const boost::json::array& messages,
                                 const ChatCapabilities& capabilities);

}  // namespace lockstep
