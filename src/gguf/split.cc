#include "gguf/split.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep {
namespace {

constexpr size_t kDigits = 5;

// Takes five digits off the end of `text`.
std::optional<uint32_t> TakeNumber(std::string_view* text) {
  if (text->size() < kDigits) return std::nullopt;
  std::string_view digits = text->substr(text->size() - kDigits);
  uint32_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + kDigits, value);
  if (error != std::errc() || end != digits.data() + kDigits) return std::nullopt;
  text->remove_suffix(kDigits);
  return value;
}

bool TakeSuffix(std::string_view* text, std::string_view suffix) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::string GgufSplitName::PathOf(uint32_t n) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, n, count);
}

std::optional<GgufSplitName> ParseGgufSplitName(std::string_view path) {
  if (!TakeSuffix(&path, ".gguf")) return std::nullopt;
  std::optional<uint32_t> count = TakeNumber(&path);
  if (!count || !TakeSuffix(&path, "-of-")) return std::nullopt;
  std::optional<uint32_t> number = TakeNumber(&path);
  if (!number || !TakeSuffix(&path, "-")) return std::nullopt;
  return GgufSplitName{std::string(path), *number, *count};
}

}  // namespace lockstep
