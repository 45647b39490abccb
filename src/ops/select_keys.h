// Which cached positions a token attends to: those whose index keys score highest (DeepSeek-V3.2, DeepSeek-AI 2025, section 2.1), alone or
// in pools of positions that share one key.
//
// A token at position `pos` scores the entries e < (pos + 1) / pool, those of whole pools, as ops/index_scores.h defines. Chosen are the top_k
// entries of the largest scores, of equal ones the lower; NaN counts as less than any number. All are chosen where there are no more.
// Entries before `first` are not there.
// A choice depends on the token and the cache alone.
#pragma once

#include <span>

#include "ops/index_scores.h"
#include "ops/operations.h"

namespace lockstep {

inline constexpr std::string_view kSelectKeysRule = "th!d!, th!, s!g!d! -> tn";
inline constexpr std::string_view kSelectKeysUnweightedRule = "th!d!, s!g!d! -> tn";

// Keeps the best of a stream of scored entries in memory for twice as many.
class TopEntries {
 public:
  // buffer: 2 top_k numbers.
  TopEntries(int64_t top_k, std::span<uint64_t> buffer) : top_k_(top_k), buffer_(buffer) {}
  void Add(int64_t entry, float score) { AddRank(Rank(entry, score)); }
  // A number that orders as entries are preferred: lower is better.
  static uint64_t Rank(int64_t entry, float score);
  static int64_t EntryOf(uint64_t rank) { return static_cast<int64_t>(rank & 0xffffffff); }
  void AddRank(uint64_t rank);
  // The ranks of the best, at most top_k, in no order.
  std::span<uint64_t> Finish();

 private:
  void Compact();

  int64_t top_k_;
  std::span<uint64_t> buffer_;
  int64_t count_ = 0;
  uint64_t worst_ = ~uint64_t{0};  // kept by the last compaction
};

struct SelectKeysSettings {
  float scale = 1;
  int64_t top_k = 0;  // entries
  int64_t pool = 1;   // positions of an entry
  int64_t first = 0;  // entry
  bool weighted = true;
  // Give the chosen entries themselves. Otherwise their positions, and with them those of the pool that is not yet whole.
  bool entries = false;

  // Numbers in a row of the result.
  int64_t width() const { return entries ? top_k : top_k * pool + pool - 1; }
};

// q [t, h, d], w [t, h] where weighted, index keys -> [t, n]: what is chosen, ascending, as numbers; -1 after the last.
OperationPtr MakeSelectKeys(const SelectKeysSettings& settings);

}  // namespace lockstep
