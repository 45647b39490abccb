// Template values from and to JSON.
#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "text/jinja_value.h"

namespace lockstep::jinja {
namespace {

Value FromJsonAt(const boost::json::value& value, int level) {
  if (level > kMaxValueDepth) throw Fault(fmt::format("JSON nests deeper than {}", kMaxValueDepth));
  switch (value.kind()) {
    case boost::json::kind::null:
      return Value();
    case boost::json::kind::bool_:
      return Value(value.get_bool());
    case boost::json::kind::int64:
      return Value(Int{value.get_int64()});
    case boost::json::kind::uint64:
      return Value(Int{value.get_uint64()});
    case boost::json::kind::double_:
      return Value(value.get_double());
    case boost::json::kind::string:
      return Value(std::string_view(value.get_string()));
    case boost::json::kind::array: {
      std::vector<Value> items;
      items.reserve(value.get_array().size());
      for (const auto& item : value.get_array()) items.push_back(FromJsonAt(item, level + 1));
      return Value::MakeList(std::move(items));
    }
    case boost::json::kind::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(value.get_object().size());
      for (const auto& member : value.get_object()) {
        items.emplace_back(std::string_view(member.key()), FromJsonAt(member.value(), level + 1));
      }
      return Value::MakeDict(std::move(items));
    }
  }
  return Value();
}

// The key that json.dumps writes for a dict key.
std::string JsonKey(const Value& key) {
  if (key.IsString()) return key.text();
  if (key.IsBool()) return key.boolean() ? "true" : "false";
  if (key.IsNone()) return "null";
  if (key.IsInt() || key.IsFloat()) return key.Str();
  throw Fault(fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
}

void WriteJson(JsonWriter& writer, const std::string& out, const Value& value, bool sort_keys);

void WriteJsonDict(JsonWriter& writer, const std::string& out, const Dict& dict, bool sort_keys) {
  std::vector<const std::pair<Value, Value>*> items;
  for (const auto& item : dict.items) items.push_back(&item);
  if (sort_keys) {
    std::stable_sort(items.begin(), items.end(),
                     [](const auto* a, const auto* b) { return Less(a->first, b->first); });
  }
  writer.Begin('{');
  for (const auto* item : items) {
    writer.Key(JsonKey(item->first));
    WriteJson(writer, out, item->second, sort_keys);
  }
  writer.End('}');
}

void WriteJson(JsonWriter& writer, const std::string& out, const Value& value, bool sort_keys) {
  Budget::Spend(1);
  Budget::CheckBytes(out.size());
  if (value.IsNone()) return writer.Literal("null");
  if (value.IsBool()) return writer.Literal(value.boolean() ? "true" : "false");
  if (value.IsInt()) return writer.Literal(IntText(value.integer()));
  if (value.IsFloat()) return writer.Float(value.number());
  if (value.IsString()) return writer.String(value.text());
  if (value.IsDict()) return WriteJsonDict(writer, out, value.dict(), sort_keys);
  if (value.IsSequence(Sequence::kList) || value.IsSequence(Sequence::kTuple)) {
    writer.Begin('[');
    for (const Value& item : value.list().items) WriteJson(writer, out, item, sort_keys);
    return writer.End(']');
  }
  throw Fault(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
}

}  // namespace

Value Value::FromJson(const boost::json::value& value) { return FromJsonAt(value, 1); }

std::string ToJson(const Value& value, const JsonStyle& style) {
  std::string out;
  JsonWriter writer(out, style);
  WriteJson(writer, out, value, style.sort_keys);
  return out;
}

}  // namespace lockstep::jinja
