#include "ops/moe_routing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <climits>

#include "ops/expert_weights.h"

namespace lockstep {
namespace {

// merges[i] for rows of these experts: the two latest values meet once nothing that is still to come stands between them in the tree. The
// highest bit in which neighbours differ is the level of the node where they meet; none: one expert in two slots.
void ListMerges(std::span<const int32_t> rows, const int32_t* expert, int64_t first_expert,
                uint8_t* merges) {
  std::array<int, kMostOpenExperts + 1> level;
  size_t open = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    auto id = [&](size_t at) { return static_cast<uint64_t>(first_expert + expert[rows[at]]); };
    const int next = i + 1 < rows.size() ? std::bit_width(id(i) ^ id(i + 1)) : INT_MAX;
    merges[i] = 0;
    for (; open > 0 && level[open - 1] <= next; --open) ++merges[i];
    level[open++] = next;
  }
}

}  // namespace

void MoeRouting::Take(Pieces& pieces) {
  const int64_t slots = tokens * used;
  first_row = pieces.Take<int32_t>(experts + 1);
  token = pieces.Take<int32_t>(slots);
  expert = pieces.Take<int32_t>(slots);
  weight = pieces.Take<float>(slots);
  fold_begin = pieces.Take<int32_t>(std::ssize(roots) * (tokens + 1));
  fold_rows = pieces.Take<int32_t>(slots);
  merges = pieces.Take<uint8_t>(slots);
  row_of = pieces.Take<int32_t>(slots);
}

void MoeRouting::Fill(const float* ids, const float* weights,
                      FunctionRef<void(int64_t token)> bad) {
  std::fill_n(first_row, experts + 1, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = t * used; i < (t + 1) * used; ++i) {
      const int64_t id = ExpertOf(ids[i], all_experts), e = id - first_expert;
      if (id < 0) bad(t);
      row_of[i] = id >= 0 && e >= 0 && e < experts ? static_cast<int32_t>(e) : -1;
      if (row_of[i] >= 0) ++first_row[row_of[i] + 1];
    }
  }
  for (int64_t e = 0; e < experts; ++e) first_row[e + 1] += first_row[e];
  for (int64_t i = 0; i < tokens * used; ++i) {
    const int32_t e = row_of[i];
    if (e < 0) continue;
    const int32_t row = first_row[e]++;
    token[row] = static_cast<int32_t>(i / used);
    expert[row] = e;
    weight[row] = weights[i];
    row_of[i] = row;
  }
  // Each start has moved to the next one's place.
  for (int64_t e = experts; e > 0; --e) first_row[e] = first_row[e - 1];
  first_row[0] = 0;
  ListFolds();
}

void MoeRouting::ListFolds() {
  for (int64_t t = 0; t < tokens; ++t) std::sort(row_of + t * used, row_of + (t + 1) * used);
  int32_t at = 0;
  for (size_t r = 0; r < roots.size(); ++r) {
    int32_t* begin = fold_begin + static_cast<int64_t>(r) * (tokens + 1);
    const int32_t low = first_row[roots[r].first - first_expert],
                  high = first_row[roots[r].last - first_expert];
    for (int64_t t = 0; t < tokens; ++t) {
      begin[t] = at;
      for (int64_t i = t * used; i < (t + 1) * used; ++i) {
        if (row_of[i] >= low && row_of[i] < high) fold_rows[at++] = row_of[i];
      }
      ListMerges({fold_rows + begin[t], fold_rows + at}, expert, first_expert, merges + begin[t]);
    }
    begin[tokens] = at;
  }
}

ExpertFold MoeRouting::Fold(int64_t root) const {
  return {nullptr, fold_begin + root * (tokens + 1), fold_rows, merges, tokens, nullptr};
}

}  // namespace lockstep
