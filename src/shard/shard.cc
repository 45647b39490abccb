#include "shard/shard.h"

namespace lockstep {

ShardedGraph Shard(const Graph& graph, const Plan& plan, const FormatOf&) {
  if (plan.mesh.ranks() != 1) {
    throw Refused("{}: plan: expected 1 rank, as this build cuts nothing yet, found {}", graph.name,
                  plan.mesh.ranks());
  }
  return {plan, {graph}, std::vector<Placement>(graph.values.size()), {}};
}

}  // namespace lockstep
