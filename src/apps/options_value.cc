// Reading values: numbers, choices, lists.
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "apps/options.h"

namespace lockstep {
namespace {

// More values than this in one list are a mistake, not a measurement.
constexpr size_t kMaxListValues = 1 << 20;
constexpr std::string_view kTrueWords = "on|true|1|yes|enabled";
constexpr std::string_view kFalseWords = "off|false|0|no|disabled";

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

template <typename T>
struct Range {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();
  bool Has(T value) const { return value >= low && value <= high; }
};

template <typename T>
Range<T> DomainRange(std::string_view domain) {
  Range<T> range;
  size_t dots = domain.find("..");
  if (dots == std::string_view::npos) return range;
  range.low = ParseNumber<T>(domain.substr(0, dots)).value_or(range.low);
  range.high = ParseNumber<T>(domain.substr(dots + 2)).value_or(range.high);
  return range;
}

bool IsOneOf(std::string_view words, std::string_view text) {
  bool found = false;
  ForEachChoice(words, [&](const ChoiceRow& choice) { found = found || choice.spelling == text; });
  return found;
}

std::optional<bool> ParseSwitch(std::string_view text) {
  if (IsOneOf(kTrueWords, text)) return true;
  if (IsOneOf(kFalseWords, text)) return false;
  return std::nullopt;
}

template <typename T>
std::optional<T> ParseInRange(const OptionRow& row, std::string_view text) {
  std::optional<T> value = ParseNumber<T>(text);
  if (value && !DomainRange<T>(row.domain).Has(*value)) return std::nullopt;
  return value;
}

// Appends "7", "1-9", "1-9+4" or "1-64*2" (llama-bench's ranges); false where the text is none of
// them.
bool AppendIntegers(const OptionRow& row, std::string_view text, std::vector<int64_t>& values) {
  size_t dash = text.find('-', 1);
  if (text.empty() || dash == std::string_view::npos) {
    std::optional<int64_t> value = ParseInRange<int64_t>(row, text);
    if (value) values.push_back(*value);
    return value.has_value();
  }
  std::string_view rest = text.substr(dash + 1);
  size_t mark = rest.find_first_of("+*");
  bool multiply = mark != std::string_view::npos && rest[mark] == '*';
  std::optional<int64_t> first = ParseInRange<int64_t>(row, text.substr(0, dash));
  std::optional<int64_t> last = ParseInRange<int64_t>(row, rest.substr(0, mark));
  std::optional<int64_t> step =
      mark == std::string_view::npos ? 1 : ParseNumber<int64_t>(rest.substr(mark + 1));
  if (!first || !last || !step || *first < 0 || *step < (multiply ? 2 : 1)) return false;
  if (multiply && *first == 0) return false;
  for (int64_t value = *first; value <= *last;) {
    if (values.size() >= kMaxListValues) return false;
    values.push_back(value);
    if (multiply ? __builtin_mul_overflow(value, *step, &value)
                 : __builtin_add_overflow(value, *step, &value))
      break;
  }
  return true;
}

// Calls `append` with each part of a list; nullopt where it refuses one, or where the list is too
// long.
template <typename T, typename Append>
std::optional<std::vector<T>> ParseList(std::string_view text, std::string_view separators,
                                        const Append& append) {
  std::vector<T> values;
  while (true) {
    size_t end = text.find_first_of(separators);
    if (values.size() >= kMaxListValues || !append(text.substr(0, end), values))
      return std::nullopt;
    if (end == std::string_view::npos) return values;
    text.remove_prefix(end + 1);
  }
}

std::string RangeText(std::string_view domain) {
  size_t dots = domain.find("..");
  if (dots == std::string_view::npos) return "";
  std::string_view low = domain.substr(0, dots);
  std::string_view high = domain.substr(dots + 2);
  if (high.empty()) return fmt::format(" from {} up", low);
  return fmt::format(" from {} to {}", low, high);
}

std::string ChoiceNames(std::string_view domain) {
  std::vector<std::string_view> names;
  ForEachChoice(domain, [&](const ChoiceRow& choice) {
    if (choice.spelling == choice.canonical) names.push_back(choice.spelling);
  });
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<OptionValue> ParseKind(const OptionRow& row, std::string_view text) {
  auto wrap = [](auto value) {
    return value ? std::optional<OptionValue>(std::move(*value)) : std::nullopt;
  };
  switch (row.kind) {
    case Kind::kAction:
      return std::nullopt;
    case Kind::kSwitch:
      return wrap(ParseSwitch(text));
    case Kind::kInteger:
      return wrap(ParseInRange<int64_t>(row, text));
    case Kind::kReal:
      return wrap(ParseInRange<double>(row, text));
    case Kind::kText:
      return std::string(text);
    case Kind::kFile:
      return text.empty() ? std::nullopt : std::optional<OptionValue>(std::string(text));
    case Kind::kChoice:
    case Kind::kOptional: {
      std::optional<OptionValue> found;
      ForEachChoice(row.domain, [&](const ChoiceRow& choice) {
        if (choice.spelling == text && !choice.refused) found = std::string(choice.canonical);
      });
      return found;
    }
    case Kind::kIntegers:
      return wrap(ParseList<int64_t>(text, ",", [&](std::string_view part, auto& values) {
        return AppendIntegers(row, part, values);
      }));
    case Kind::kReals:
      return wrap(ParseList<double>(text, ",/", [&](std::string_view part, auto& values) {
        std::optional<double> value = ParseInRange<double>(row, part);
        if (value) values.push_back(*value);
        return value.has_value();
      }));
    case Kind::kTexts:
      return std::vector<std::string>{std::string(text)};
  }
  return std::nullopt;
}

}  // namespace

std::string ExpectedValue(const OptionRow& row) {
  switch (row.kind) {
    case Kind::kAction:
      return "no value";
    case Kind::kSwitch:
      return "on or off";
    case Kind::kInteger:
      return fmt::format("an integer{}", RangeText(row.domain));
    case Kind::kReal:
      return fmt::format("a number{}", RangeText(row.domain));
    case Kind::kText:
    case Kind::kTexts:
      return fmt::format("a text ({})", row.value);
    case Kind::kFile:
      return "a path";
    case Kind::kChoice:
    case Kind::kOptional:
      return fmt::format("one of {}", ChoiceNames(row.domain));
    case Kind::kIntegers:
      return fmt::format("integers{} such as 1,2,3", RangeText(row.domain));
    case Kind::kReals:
      return fmt::format("numbers{} such as 3,1", RangeText(row.domain));
  }
  return "";
}

bool IsChoice(const OptionRow& row, std::string_view text) { return IsOneOf(row.domain, text); }

OptionValue ParseValue(const OptionRow& row, std::string_view text, std::string_view where) {
  // A C string ends at the first NUL; a path must not name another file than it seems to.
  if (text.find('\0') != std::string_view::npos) {
    throw Refused("{}: expected {}, found a NUL character", where, ExpectedValue(row));
  }
  std::optional<OptionValue> value = ParseKind(row, text);
  if (value) return *std::move(value);
  if (row.kind == Kind::kChoice || row.kind == Kind::kOptional) {
    ForEachChoice(row.domain, [&](const ChoiceRow& choice) {
      if (!choice.refused || choice.spelling != text) return;
      throw Refused("{}: {} is not supported; use {}", where, text, choice.canonical);
    });
  }
  throw Refused("{}: expected {}, found '{}'", where, ExpectedValue(row), Printable(text));
}

}  // namespace lockstep
