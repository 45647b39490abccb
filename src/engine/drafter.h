// Drafts tokens with a draft checkpoint (models/drafts.h) beside a model.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/evaluator.h"

namespace lockstep {

// What was drafted after a token at the end of a sequence.
struct Drafted {
  std::vector<int32_t> tokens;  // that token, and the likeliest one in each row of logits
  std::vector<float> logits;    // [tokens - 1, v]
  std::vector<float>
      hidden;  // [rows, n], as the draft ends: a row for each row of logits; of a block one for its first token, too
};

// For a model opened with LoadOptions::draft. Follows an evaluator of it: what Evaluator::Run() computes must be shown to See(), all rows
// from the first on.
class Drafter {
 public:
  explicit Drafter(Evaluator& evaluator);

  // Takes in the rows that `visit` is looking at.
  void See(const EvaluatedRows& rows);

  // Drafts what follows `token`, which stands behind all rows seen: at most `most` tokens, or a block. Throws Refused where the context is too short, and as RunRows().
  Drafted Draft(int32_t token, int64_t most);

 private:
  const DraftGraphs& graphs() const { return draft_.graphs; }
  RankSet& ranks() const { return *draft_.graph->ranks; }
  void Append(Drafted& drafted, std::span<const float> logits) const;
  void DraftBlock(Drafted& drafted);
  void DraftSteps(int64_t steps, Drafted& drafted);

  Evaluator& evaluator_;
  DraftModel& draft_;
  std::vector<float> last_;  // the row of input after the last row seen
};

}  // namespace lockstep
