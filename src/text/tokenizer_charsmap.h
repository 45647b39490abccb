// SentencePiece's compiled normalisation table ("precompiled_charsmap").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The table: a 32-bit byte count, that many bytes of a double-array trie (32-bit units, as Darts
// writes them), then replacement texts, each ended by a 0 byte; a trie value is an offset into
// those. Nothing in the table is trusted: what points outside is no match.
class Charsmap {
 public:
  Charsmap() = default;
  // Refused "WHO: ..." where the sizes do not fit; an empty table changes nothing.
  Charsmap(const std::string& who, std::string_view table);

  // Replaces the longest match at each place; what is not matched stays. Stops soon after the result
  // has more than `limit` bytes.
  std::string Apply(std::string_view text, size_t limit) const;

 private:
  struct Match {
    size_t bytes = 0;
    std::string_view replacement;
  };
  Match LongestAt(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace lockstep
