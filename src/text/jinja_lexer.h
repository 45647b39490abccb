// Splits template source into tokens, with the whitespace control of Jinja where trim_blocks and
// lstrip_blocks are on, as transformers sets it (Jinja 3.1 documentation, "Whitespace Control").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace lockstep::jinja {

struct Token {
  enum class Type {
    kData,  // text outside tags
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,   // text: the string meant
    kInteger,  // value
    kFloat,    // value
    kOperator,
    kEnd,
  };

  bool Is(std::string_view op) const { return type == Type::kOperator && text == op; }
  bool IsName(std::string_view name) const { return type == Type::kName && text == name; }
  // "'endif'", "a string", "the end of the template": for errors.
  std::string Describe() const;

  Type type = Type::kEnd;
  std::string text;
  Value value;
  int line = 1;    // from 1
  int column = 1;  // from 1, in bytes
};

// The tokens of a template, kEnd last. Throws Fault, located, where a comment, raw block or string
// does not end, a bracket has no partner or a character starts no token. Source is valid UTF-8.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace lockstep::jinja
