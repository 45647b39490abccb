// Embeddings of n-grams, looked up by hash (the per-layer embeddings of Qwen4).
//
// The last tokens of a sequence are a recurrent state (ops/recurrent.h) of one number a distance: the token and 1, 0 where there is none. A row
// of MakePreviousTokens has the tokens at distances 1 .. n, as numbers; from the first distance on that is before the sequence or holds the
// end of a text, all are that end's token.
//
// Head h of the heads of order o (2 .. n + 1 tokens), with multipliers m and previous tokens p, p[0] being the token itself:
//   row = offsets[h] + (p[0] m[0] xor .. xor p[o - 1] m[o - 1]) mod sizes[h]       in 64 bits without sign
#pragma once

#include <cstdint>
#include <vector>

#include "ops/operations.h"

namespace lockstep {

// tokens [t], state [n] whose log row is [1] -> [t, n]
OperationPtr MakePreviousTokens(int64_t n, int32_t end);

struct NgramSettings {
  std::vector<uint64_t> multipliers;  // [n + 1]
  std::vector<uint64_t> sizes,
      offsets;    // [heads], heads of one order together, ascending; n orders of as many heads
  int64_t d = 0;  // numbers of a table row
};
// tokens [t], previous tokens [t, n], table [v, d] -> [t, heads, d]. Every offset and its size lie within the table.
OperationPtr MakeNgramEmbed(const NgramSettings& settings);

}  // namespace lockstep
