// A value of a JSON file with its place in it, so that every complaint names the key.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep {

// View of one value; the document outlives it. Getters throw Refused "FILE: KEY.KEY[3]: expected a
// string, found null".
class JsonNode {
 public:
  JsonNode(const boost::json::value& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  bool is_null() const { return value_->is_null(); }
  const std::string& path() const { return path_; }
  const boost::json::value& value() const { return *value_; }

  std::string_view String() const {
    if (!value_->is_string()) Expected("a string");
    return value_->get_string();
  }
  double Number() const {
    if (!value_->is_number()) Expected("a number");
    return value_->to_number<double>();
  }
  // An integer from 0 to `max`.
  int64_t Count(int64_t max) const {
    boost::json::error_code error;
    const int64_t n = value_->is_number() ? value_->to_number<int64_t>(error) : -1;
    if (error.failed() || n < 0 || n > max) Expected(fmt::format("an integer from 0 to {}", max));
    return n;
  }
  bool Bool() const {
    if (!value_->is_bool()) Expected("true or false");
    return value_->get_bool();
  }
  std::vector<JsonNode> Items() const {
    if (!value_->is_array()) Expected("an array");
    std::vector<JsonNode> items;
    for (const auto& item : value_->get_array()) {
      items.emplace_back(item, fmt::format("{}[{}]", path_, items.size()));
    }
    return items;
  }
  const boost::json::object& Object() const {
    if (!value_->is_object()) Expected("an object");
    return value_->get_object();
  }

  // A member, or nothing where it is missing or null.
  std::optional<JsonNode> Find(std::string_view key) const {
    const boost::json::value* member = Object().if_contains(key);
    if (member == nullptr || member->is_null()) return std::nullopt;
    return JsonNode(*member, PathOf(key));
  }
  JsonNode At(std::string_view key) const {
    if (const auto member = Find(key)) return *member;
    throw Refused("{}: expected a value, found none", PathOf(key));
  }
  bool BoolOr(std::string_view key, bool otherwise) const {
    const auto member = Find(key);
    return member ? member->Bool() : otherwise;
  }
  std::string StringOr(std::string_view key, std::string_view otherwise) const {
    const auto member = Find(key);
    return std::string(member ? member->String() : otherwise);
  }

  [[noreturn]] void Expected(std::string_view what) const {
    throw Refused("{}: expected {}, found {}", path_, what,
                  Printable(boost::json::serialize(*value_), 60));
  }

 private:
  std::string PathOf(std::string_view key) const {
    const bool root = path_.ends_with(": ");
    return fmt::format("{}{}{}", path_, root ? "" : ".", Printable(key, 40));
  }

  const boost::json::value* value_;
  std::string path_;
};

struct Vocab;

// The parts of a tokenizer.json around the model; each appends to `vocab`. Refused where a type is
// not known, with the known ones.
void ReadNormalizer(const JsonNode& node, Vocab* vocab);
void ReadPreTokenizer(const JsonNode& node, Vocab* vocab);
void ReadPostProcessor(const JsonNode& node, Vocab* vocab);
void ReadDecoder(const JsonNode& node, Vocab* vocab);

}  // namespace lockstep
