// JSON and Python text: numbers and strings as Python's `json.dumps` and `repr` print them. Chat
// templates depend on it to the byte, and Boost.JSON itself prints 0.8 as 8E-1.
#pragma once

#include <boost/json/fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// How a document is laid out; the defaults are those of Python's json.dumps with
// ensure_ascii=False.
struct JsonStyle {
  std::optional<std::string> indent;  // text of one level; absent: all on one line
  std::string item_separator = ", ";  // "," is usual with an indent
  std::string key_separator = ": ";
  bool ascii = false;  // write what is not ASCII as \uXXXX
  bool sort_keys = false;

  // No blanks at all, as servers send it.
  static JsonStyle Compact() { return {std::nullopt, ",", ":", false, false}; }
};

// A float as Python's repr prints it, the shortest text that reads back: 0.8, 1e-05, 1e+16, 3.0,
// inf, nan.
std::string PythonFloat(double value);

// A string as Python's repr prints it: single quotes unless only those occur inside, unprintable
// code points escaped. `text` is UTF-8.
std::string PythonQuoted(std::string_view text);

// Appends a quoted JSON string; `text` is UTF-8.
void AppendJsonString(std::string& out, std::string_view text, bool ascii);

// Writes one document piece by piece; the caller keeps the order of calls legal (Key before each
// value of an object).
class JsonWriter {
 public:
  // `out` and `style` outlive the writer.
  JsonWriter(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

  void Begin(char bracket);  // '[' or '{'
  void End(char bracket);    // ']' or '}'
  void Key(std::string_view key);
  void String(std::string_view text);
  void Float(double value);  // NaN and infinities as Python writes them: NaN, Infinity, -Infinity
  void Literal(std::string_view text);  // null, true, false, or an integer's digits

 private:
  void Item();
  void NewLine();

  std::string& out_;
  const JsonStyle& style_;
  size_t level_ = 0;
  bool first_ = true;       // no item yet in the open array or object
  bool after_key_ = false;  // the next value belongs to a key
};

// The text of a document, keys in their order unless the style sorts them.
std::string JsonText(const boost::json::value& value, const JsonStyle& style = {});

// The document in `text`. Throws Refused naming `who` and the place where it is not JSON, is not
// UTF-8, or nests deeper than `max_depth`.
boost::json::value ParseJson(std::string_view who, std::string_view text, size_t max_depth = 64);

}  // namespace lockstep
