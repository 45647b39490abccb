// Which stage of a pipeline computes what of a graph.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "shard/plan.h"

namespace lockstep {

struct Stages {
  std::vector<int32_t> of_node;
  // Of each value whether it follows from the tokens alone, so that any stage may make it for itself.
  std::vector<bool> from_tokens;
};

// Deals the layers by the plan's shares, in runs. Layers that use one state stay together. Nodes before the first layer go with stage 0, those after
// a layer with it. A stage may get nothing.
Stages DealLayers(const Graph& graph, const Plan& plan);

}  // namespace lockstep
