#include "shard/stages.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep {
namespace {

// Whether the layers before `layer` and those from it on have no state in common, for layers 0 .. layers.
std::vector<bool> Boundaries(const Graph& graph, int32_t layers) {
  std::vector<int32_t> first(graph.states.size(), layers), last(graph.states.size(), -1);
  for (const Node& node : graph.nodes) {
    for (ValueId id : node.inputs) {
      const Value& value = graph.value(id);
      if (value.kind != Value::Kind::kState) continue;
      const auto slot = static_cast<size_t>(value.state_slot);
      first[slot] = std::min(first[slot], std::max(node.layer, 0));
      last[slot] = std::max(last[slot], node.layer);
    }
  }
  std::vector<bool> boundary(static_cast<size_t>(layers) + 1, true);
  for (size_t slot = 0; slot < first.size(); ++slot) {
    for (int32_t layer = first[slot] + 1; layer <= last[slot]; ++layer)
      boundary[static_cast<size_t>(layer)] = false;
  }
  return boundary;
}

std::vector<int32_t> StageOfLayers(const Graph& graph, const Plan& plan, int32_t layers) {
  const std::vector<double> shares =
      plan.pipeline_shares.empty()
          ? std::vector<double>(static_cast<size_t>(plan.mesh.pipeline), 1.0)
          : plan.pipeline_shares;
  const std::vector<bool> boundary = Boundaries(graph, layers);
  auto nearest = [&](int64_t wanted, int64_t least) {
    int64_t best = layers;
    for (int64_t at = least; at <= layers; ++at) {
      if (boundary[static_cast<size_t>(at)] && std::abs(at - wanted) < std::abs(best - wanted))
        best = at;
    }
    return best;
  };
  std::vector<int32_t> stage(static_cast<size_t>(layers));
  const AxisCut cut = CutAxis(layers, 1, shares);
  int64_t begin = 0;
  for (size_t s = 0; s < shares.size(); ++s) {
    const int64_t end = cut.runs[s].size() == 0 ? begin : nearest(cut.runs[s].end, begin);
    std::fill(stage.begin() + begin, stage.begin() + end, static_cast<int32_t>(s));
    begin = end;
  }
  return stage;
}

std::vector<bool> FromTokens(const Graph& graph) {
  std::vector<bool> from_tokens(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i)
    from_tokens[i] = graph.values[i].kind == Value::Kind::kTokens;
  for (const Node& node : graph.nodes) {
    if (node.output == kNoValue || node.op->writes_state()) continue;
    from_tokens[static_cast<size_t>(node.output)] = std::ranges::all_of(
        node.inputs, [&](ValueId id) { return from_tokens[static_cast<size_t>(id)]; });
  }
  return from_tokens;
}

}  // namespace

Stages DealLayers(const Graph& graph, const Plan& plan) {
  int32_t layers = 0;
  for (const Node& node : graph.nodes) layers = std::max(layers, node.layer + 1);
  const std::vector<int32_t> stage_of = StageOfLayers(graph, plan, layers);
  Stages stages{{}, FromTokens(graph)};
  int32_t stage = 0;
  for (const Node& node : graph.nodes) {
    if (node.layer >= 0) stage = stage_of[static_cast<size_t>(node.layer)];
    stages.of_node.push_back(stage);
  }
  return stages;
}

}  // namespace lockstep
