#include "apps/placements_report.h"

#include <boost/json.hpp>

namespace lockstep {
namespace {

boost::json::array Axes(const Shape& shape) {
  boost::json::array axes;
  for (size_t i = 0; i < shape.rank(); ++i)
    axes.push_back({{"name", std::string(1, shape[i].name)}, {"size", shape[i].size}});
  return axes;
}

boost::json::object Object(const Collective& collective, const Mesh& mesh) {
  return {{"name", collective.name},
          {"kind", CollectiveKindName(collective.kind)},
          {"layer", collective.layer},
          {"stage", collective.stage(mesh)},
          {"terms", collective.terms},
          {"numbers", boost::json::array(collective.numbers.begin(), collective.numbers.end())},
          {"bytes_per_token", collective.most_received()}};
}

}  // namespace

boost::json::object PlacementsObject(const Graph& whole, const ShardedGraph& sharded) {
  const Mesh& mesh = sharded.plan.mesh;
  boost::json::array values, collectives;
  for (size_t n = 0; n < whole.nodes.size(); ++n) {
    const Node& node = whole.nodes[n];
    if (node.output == kNoValue) continue;
    const Value& value = whole.value(node.output);
    values.push_back(
        {{"name", value.name},
         {"operation", node.op->name()},
         {"axes", Axes(value.shape)},
         {"placement", sharded.placements[static_cast<size_t>(node.output)].ToString(value.shape)},
         {"stage", sharded.node_stages[n]}});
  }
  for (const Collective& collective : sharded.collectives)
    collectives.push_back(Object(collective, mesh));
  return {{"architecture", whole.name},
          {"tensor_ranks", mesh.tensor},
          {"pipeline_ranks", mesh.pipeline},
          {"values", std::move(values)},
          {"collectives", std::move(collectives)}};
}

}  // namespace lockstep
