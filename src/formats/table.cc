// The table of formats and the two ways to look one up.
#include <algorithm>

#include "formats/rows.h"

namespace lockstep {
namespace {

#define LOCKSTEP_FORMAT_ROW(name) &kFormat##name,
constexpr const Format* kFormats[] = {LOCKSTEP_FORMATS(LOCKSTEP_FORMAT_ROW)};
#undef LOCKSTEP_FORMAT_ROW

char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::span<const Format* const> AllFormats() { return kFormats; }

const Format* FindFormat(uint32_t id) {
  for (const Format* format : kFormats) {
    if (format->id == id) return format;
  }
  return nullptr;
}

const Format* FindFormat(std::string_view name) {
  for (const Format* format : kFormats) {
    if (std::ranges::equal(format->name, name, {}, {}, Upper)) return format;
  }
  return nullptr;
}

}  // namespace lockstep
