// Draft checkpoints: models that propose tokens from what another model computes. Each is a row and a file; its graphs run beside that model's
// (Graph), which it was made for.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "models/source.h"

namespace lockstep {

// The model that a draft runs beside. Both must outlive what is built.
struct DraftTarget {
  const ModelSource& source;
  const Graph& graph;
};

struct DraftGraphs {
  // Gives the logits of drafted tokens. Its rows stand at the positions of their tokens.
  Graph graph;
  // Values of the model's graph: side by side one row of input.
  std::vector<ValueId> seen;
  // Takes in those rows, each at the position at which the model computed it, and caches what `graph` sees of them. Without one `graph` takes
  // the row before its token as input, and its own final_hidden for the token after that.
  std::optional<Graph> context;
  // Tokens are drafted together, by one run of a token and block - 1 times mask_token; 0: one after the other.
  int64_t block = 0;
  int32_t mask_token = 0;
};

// Throws Refused where a file is a draft.
void ExpectModel(const ModelSource& source);
// States the graphs of a draft. Throws Refused naming its architecture and the known ones, the key or tensor that does not fit, or what the
// model lacks.
DraftGraphs BuildDraft(const ModelSource& source, const DraftTarget& target);

}  // namespace lockstep
