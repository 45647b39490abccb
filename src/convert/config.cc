#include "convert/config.h"

#include <cmath>

#include "base/error.h"
#include "text/json_text.h"

namespace lockstep {
namespace {

constexpr int64_t kMostCount = int64_t{1} << 31;

// Members of `from` that are not null, over those of `into`.
void Overlay(const boost::json::object& from, boost::json::object& into) {
  for (const auto& [key, value] : from) {
    if (!value.is_null()) into[key] = value;
  }
}

void SetWhereAbsent(std::string_view key, const std::optional<JsonNode>& value,
                    boost::json::object& into) {
  const auto* found = into.if_contains(key);
  if (value && (found == nullptr || found->is_null())) into[key] = value->value();
}

// Python writes NaN and infinities, which JSON does not have: null in their place.
std::string WithoutSpecialNumbers(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\' && i + 1 < text.size()) out += text[i++];
    if (!quoted) {
      bool special = false;
      for (std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (special || !text.substr(i).starts_with(word)) continue;
        out += "null";
        i += word.size() - 1;
        special = true;
      }
      if (special) continue;
    }
    out += text[i];
  }
  return out;
}

double Finite(const JsonNode& node) {
  const double number = node.Number();
  if (!std::isfinite(number) || std::abs(number) > 1e37) node.Expected("a finite number");
  return number;
}

}  // namespace

Config::Config(std::string file, boost::json::object members)
    : path_(std::move(file)),
      members_(std::make_shared<const boost::json::object>(std::move(members))) {}

Config Config::Parse(std::string_view file, std::string_view text) {
  const std::string path = Printable(file, 4096) + ": ";
  const boost::json::value document = ParseJson(file, WithoutSpecialNumbers(text));
  const JsonNode root(document, path);
  boost::json::object members = root.Object();
  if (const auto nested = root.Find("text_config")) {
    const boost::json::value classes = document.as_object().contains("architectures")
                                           ? document.as_object().at("architectures")
                                           : boost::json::value();
    Overlay(nested->Object(), members);
    if (!classes.is_null()) members["architectures"] = classes;
  }
  return Config(path, std::move(members));
}

Config Config::WithDefaults(std::string_view defaults) const {
  boost::json::object members = ParseJson("defaults", defaults).as_object();
  Overlay(*members_, members);
  return Config(path_, std::move(members));
}

std::optional<JsonNode> Config::Find(const KeyNames& names) const {
  for (std::string_view name : names) {
    const boost::json::value* value = members_->if_contains(name);
    if (value != nullptr && !value->is_null()) return JsonNode(*value, path_ + std::string(name));
  }
  return std::nullopt;
}

JsonNode Config::At(const KeyNames& names) const {
  const auto node = Find(names);
  if (!node) Refuse(names.newest(), "expected a value, but the key is missing");
  return *node;
}

int64_t Config::Count(const KeyNames& names) const { return At(names).Count(kMostCount); }

std::optional<int64_t> Config::OptionalCount(const KeyNames& names) const {
  const auto node = Find(names);
  return node ? std::optional(node->Count(kMostCount)) : std::nullopt;
}

int64_t Config::CountOr(const KeyNames& names, int64_t otherwise) const {
  return OptionalCount(names).value_or(otherwise);
}

double Config::Number(const KeyNames& names) const { return Finite(At(names)); }

std::optional<double> Config::OptionalNumber(const KeyNames& names) const {
  const auto node = Find(names);
  return node ? std::optional(Finite(*node)) : std::nullopt;
}

double Config::NumberOr(const KeyNames& names, double otherwise) const {
  return OptionalNumber(names).value_or(otherwise);
}

bool Config::BoolOr(const KeyNames& names, bool otherwise) const {
  const auto node = Find(names);
  return node ? node->Bool() : otherwise;
}

std::string Config::String(const KeyNames& names) const { return std::string(At(names).String()); }

std::string Config::StringOr(const KeyNames& names, std::string_view otherwise) const {
  const auto node = Find(names);
  return std::string(node ? node->String() : otherwise);
}

std::vector<int64_t> Config::Counts(const KeyNames& names) const {
  std::vector<int64_t> counts;
  if (const auto node = Find(names)) {
    for (const JsonNode& item : node->Items()) counts.push_back(item.Count(kMostCount));
  }
  return counts;
}

std::vector<double> Config::Numbers(const KeyNames& names) const {
  std::vector<double> numbers;
  if (const auto node = Find(names)) {
    for (const JsonNode& item : node->Items()) numbers.push_back(Finite(item));
  }
  return numbers;
}

std::vector<std::string> Config::Strings(const KeyNames& names) const {
  std::vector<std::string> texts;
  if (const auto node = Find(names)) {
    for (const JsonNode& item : node->Items()) texts.emplace_back(item.String());
  }
  return texts;
}

int64_t Config::head_dim() const {
  if (const auto given = OptionalCount("head_dim")) return *given;
  const int64_t width = Count("hidden_size"), heads = Count("num_attention_heads");
  if (heads == 0 || width % heads != 0) {
    Refuse("num_attention_heads",
           fmt::format("expected a divisor of hidden_size {}, found {}", width, heads));
  }
  return width / heads;
}

std::vector<bool> Config::WindowedLayers() const {
  const std::vector<std::string> kinds = Strings("layer_types");
  const auto count = static_cast<size_t>(layers());
  if (kinds.empty()) return std::vector<bool>(count);
  if (kinds.size() < count) {
    Refuse("layer_types", fmt::format("expected {} kinds, found {}", count, kinds.size()));
  }
  std::vector<bool> windowed(count);
  for (size_t i = 0; i < count; ++i) windowed[i] = kinds[i] == "sliding_attention";
  return windowed;
}

Config Config::Rope(std::string_view kind) const {
  boost::json::object rope;
  std::string key = "rope_parameters";
  if (const auto scaling = Find("rope_scaling")) {
    key = "rope_scaling";
    Overlay(scaling->Object(), rope);
  }
  if (const auto parameters = Find("rope_parameters")) {
    key = "rope_parameters";
    const auto of_kind = parameters->Find(kind);
    Overlay(of_kind ? of_kind->Object() : parameters->Object(), rope);
  }
  const Config found(fmt::format("{}{}.", path_, key), rope);
  SetWhereAbsent("rope_type", found.Find("type"), rope);
  for (std::string_view flat : {"rope_theta", "partial_rotary_factor",
                                "original_max_position_embeddings", "max_position_embeddings"}) {
    SetWhereAbsent(flat, Find({flat}), rope);
  }
  return Config(fmt::format("{}{}.", path_, key), std::move(rope));
}

void Config::Refuse(std::string_view key, std::string_view text) const {
  throw Refused("{}{}: {}", path_, key, text);
}

}  // namespace lockstep
