// How the tokens of a batch meet the experts: rows grouped by expert, and how each token's rows meet again.
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "formats/segment_tree.h"
#include "ops/moe_ffn.h"
#include "ops/pieces.h"

namespace lockstep {

// A chosen (token, slot) pair whose expert is here is a *row*; rows stand by ascending expert, then token, then slot. Views of memory
// that Take() cuts.
struct MoeRouting {
  int64_t tokens = 0, used = 0;
  int64_t first_expert = 0, experts = 0,
          all_experts = 0;           // here: [first_expert, first_expert + experts)
  std::span<const LeafRange> roots;  // over experts, of those here
  int32_t* first_row = nullptr;      // [experts + 1]
  int32_t* token = nullptr;          // [rows]
  int32_t* expert = nullptr;         // [rows]  counted from first_expert
  float* weight = nullptr;           // [rows]
  int32_t* fold_begin = nullptr;     // [roots, tokens + 1]  into the two below
  int32_t* fold_rows = nullptr;      // [rows]
  uint8_t* merges = nullptr;         // [rows]
  int32_t* row_of = nullptr;         // [tokens, used]

  int64_t rows() const { return first_row[experts]; }
  // Arrays for these tokens, used, experts and roots.
  void Take(Pieces& pieces);
  // Fills the arrays. ids, weights: [tokens, used]; calls bad(token) where an id stands for no expert: that slot is left out.
  void Fill(const float* ids, const float* weights, FunctionRef<void(int64_t token)> bad);
  // The fold of one root, without its memory of leaves.
  ExpertFold Fold(int64_t root) const;

 private:
  void ListFolds();
};

}  // namespace lockstep
