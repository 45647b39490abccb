#include "shard/shard.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "shard/stage_builder.h"

namespace lockstep {
namespace {

// A value that later stages take, and which they are.
using Handed = std::map<ValueId, std::set<int32_t>>;

Handed FindHanded(const Graph& graph, const Stages& stages) {
  std::vector<int32_t> made(graph.values.size(), -1);
  Handed handed;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (ValueId value : node.inputs) {
      const int32_t from = made[static_cast<size_t>(value)];
      if (from >= 0 && from != stages.of_node[n] && !stages.from_tokens[static_cast<size_t>(value)])
        handed[value].insert(stages.of_node[n]);
    }
    if (node.output != kNoValue) made[static_cast<size_t>(node.output)] = stages.of_node[n];
  }
  return handed;
}

constexpr std::string_view kKindNames[] = {"reduce", "gather", "send"};

}  // namespace

std::string_view CollectiveKindName(Collective::Kind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

ShardedGraph Shard(const Graph& graph, const Plan& plan, const FormatOf& format_of) {
  ShardedGraph sharded;
  sharded.plan = plan;
  sharded.states = graph.states;
  sharded.ranks.resize(static_cast<size_t>(plan.mesh.ranks()));
  sharded.placements.resize(graph.values.size());
  const Cuts cuts(graph, plan, format_of);
  const Stages stages = DealLayers(graph, plan);
  sharded.node_stages = stages.of_node;
  const Handed handed = FindHanded(graph, stages);
  std::vector<int32_t> made(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].output != kNoValue)
      made[static_cast<size_t>(graph.nodes[n].output)] = stages.of_node[n];
  }
  // A tag for each value and stage that takes it.
  std::map<std::pair<ValueId, int32_t>, int32_t> tags;
  for (const auto& [value, takers] : handed) {
    for (int32_t taker : takers)
      tags.try_emplace({value, taker}, static_cast<int32_t>(tags.size()));
  }
  for (int32_t stage = 0; stage < plan.mesh.pipeline; ++stage) {
    StageBuilder builder({graph, cuts, stages, sharded}, stage);
    for (const auto& [value, takers] : handed) {
      if (takers.contains(stage))
        builder.Receive(value, made[static_cast<size_t>(value)], tags.at({value, stage}));
    }
    size_t last = graph.nodes.size();
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (stages.of_node[n] != stage) continue;
      builder.Add(n);
      last = n + 1;
    }
    builder.EndNodes(last);
    for (const auto& [value, takers] : handed) {
      if (made[static_cast<size_t>(value)] != stage) continue;
      builder.Complete(value);
      for (int32_t taker : takers) builder.Send(value, taker, tags.at({value, taker}));
    }
    builder.Finish();
  }
  return sharded;
}

int64_t Collective::received(size_t rank) const {
  const int64_t all = std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
  return (all - numbers[rank]) * int64_t{sizeof(float)};
}

int64_t Collective::most_received() const {
  if (kind == Kind::kSend) return *std::ranges::max_element(numbers) * int64_t{sizeof(float)};
  return received(static_cast<size_t>(std::ranges::min_element(numbers) - numbers.begin()));
}

int32_t Collective::stage(const Mesh& mesh) const {
  const auto giver = std::ranges::find_if(numbers, [](int64_t n) { return n > 0; });
  const auto rank = std::min(giver - numbers.begin(), std::ssize(numbers) - 1);
  return mesh.stage(static_cast<int32_t>(rank));
}

int64_t ShardedGraph::collectives_per_layer() const {
  std::map<int32_t, int64_t> counts;
  int64_t most = 0;
  for (const Collective& collective : collectives) {
    if (collective.kind != Collective::Kind::kSend && collective.layer >= 0)
      most = std::max(most, ++counts[collective.layer]);
  }
  return most;
}

std::string ShardedGraph::Print(const Graph& whole) const {
  size_t width = 0;
  const std::string lines = whole.Print();
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    width = std::max(width, end - at);
    at = end + 1;
  }
  std::string text;
  size_t at = 0;
  auto collective = collectives.begin();
  auto print_collectives = [&](size_t before) {
    for (; collective != collectives.end() && collective->node <= before; ++collective) {
      text += fmt::format("{} = {}{}, {} bytes a token\n", collective->name,
                          CollectiveKindName(collective->kind),
                          collective->terms > 1 ? fmt::format(" of {}", collective->terms) : "",
                          collective->most_received());
    }
  };
  for (size_t n = 0; n < whole.nodes.size(); ++n) {
    print_collectives(n);
    if (plan.mesh.pipeline > 1 && (n == 0 || node_stages[n] != node_stages[n - 1]))
      text += fmt::format("stage {}\n", node_stages[n]);
    const size_t end = lines.find('\n', at);
    const ValueId output = whole.nodes[n].output;
    const std::string placement =
        output == kNoValue
            ? ""
            : placements[static_cast<size_t>(output)].ToString(whole.value(output).shape);
    text += fmt::format("{:<{}}  {}\n", lines.substr(at, end - at), width, placement);
    at = end + 1;
  }
  print_collectives(whole.nodes.size());
  return text;
}

}  // namespace lockstep
