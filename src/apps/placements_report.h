// Station 5 for programs: placements and collectives of a cut graph as JSON.
#pragma once

#include <boost/json/fwd.hpp>

#include "shard/shard.h"

namespace lockstep {

// {"architecture", "tensor_ranks", "pipeline_ranks", "values": [{"name", "operation", "axes": [{"name", "size"}], "placement", "stage"}],
// "collectives": [{"name", "kind", "layer", "stage", "terms", "numbers", "bytes_per_token"}]}: what operations make, in the order of the
// graph; numbers as Collective has them.
boost::json::object PlacementsObject(const Graph& whole, const ShardedGraph& sharded);

}  // namespace lockstep
