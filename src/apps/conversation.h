// A conversation with a model: its messages, the template that turns them into a prompt, and one
// answer after the other.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>

#include "apps/options.h"
#include "engine/engine.h"
#include "text/chat_template.h"

namespace lockstep {

// The template of --chat-template (Jinja, or the name of one of the file's templates),
// --chat-template-file, or the file's own. Throws Refused where there is none.
ChatTemplate ReadChatTemplate(const OptionValues& options, const Model& model);

class Conversation {
 public:
  // Reads --system-prompt, --chat-template-kwargs, --reasoning, --reasoning-effort and the template.
  Conversation(const OptionValues& options, const Model& model);

  // Replaces the system message, empty: none; takes effect with the next answer.
  void SetSystem(std::string text) { system_ = std::move(text); }
  void AddUser(std::string_view text) { Add("user", text); }
  void AddAnswer(std::string_view text) { Add("assistant", text); }
  // Removes the last message where it has this role; whether it had.
  bool RemoveLast(std::string_view role);
  void Clear() { messages_.clear(); }
  bool empty() const { return messages_.empty(); }

  // The text of the prompt for the next answer. Throws Refused in the template's words.
  std::string Prompt() const;
  // Its tokens: what the vocabulary puts before a text stands there once, whether or not the
  // template writes it too.
  std::vector<int32_t> Encode(const std::string& prompt) const;

 private:
  void Add(std::string_view role, std::string_view text);

  Tokenizer tokenizer_;
  ChatTemplate template_;
  std::string system_;
  boost::json::array messages_;
  boost::json::object variables_;
  std::optional<bool> thinking_;
};

}  // namespace lockstep
