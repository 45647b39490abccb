#include "text/tokenizer_charsmap.h"

#include "base/error.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

// Fields of a unit of the double array.
uint32_t LabelOf(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & ~(1u << 31); }
uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

uint32_t ReadLittle32(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
  return value;
}

}  // namespace

Charsmap::Charsmap(const std::string& who, std::string_view table) {
  if (table.empty()) return;
  if (table.size() < 4) {
    throw Refused("{}: expected at least 4 bytes, found {}", who, table.size());
  }
  const uint64_t trie_bytes = ReadLittle32(table);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > table.size() - 4) {
    throw Refused("{}: expected a trie of at most {} bytes in 4-byte units, found {}", who,
                  table.size() - 4, trie_bytes);
  }
  for (size_t at = 4; at < 4 + trie_bytes; at += 4)
    units_.push_back(ReadLittle32(table.substr(at)));
  replacements_ = table.substr(4 + trie_bytes);
}

Charsmap::Match Charsmap::LongestAt(std::string_view text) const {
  Match match;
  size_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || LabelOf(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    const size_t begin = node < units_.size() ? ValueOf(units_[node]) : replacements_.size();
    const size_t end = replacements_.find('\0', begin);
    if (end == std::string::npos) continue;
    match = {i + 1, std::string_view(replacements_).substr(begin, end - begin)};
  }
  return match;
}

std::string Charsmap::Apply(std::string_view text, size_t limit) const {
  if (units_.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size() && out.size() <= limit;) {
    const Match match = LongestAt(text.substr(at));
    if (match.bytes > 0) {
      out += match.replacement;
      at += match.bytes;
    } else {
      const uint32_t bytes = DecodeUtf8(text, at).bytes;
      out += text.substr(at, bytes);
      at += bytes;
    }
  }
  // A hostile table may cut characters or hold any bytes.
  return IsUtf8(out) ? out : ReplaceInvalidUtf8(out);
}

}  // namespace lockstep
