// Station 5, placements and collectives: what each rank computes of a graph under a plan, found from the operations' rules alone.
//
// Which axes are cut says shard/cuts.h. Then, in the order of the graph:
//   - an operation one of whose factors is cut does each rank's part of it. Where the factor is missing from the output, the output is Partial;
//   - an operation that meets a Partial and would be done by all ranks alike waits. What waits is done after the reduction, in the order of
//     the graph and on whole values: that is what keeps the bits, and several sums that meet later share one reduction;
//   - an operation that does a rank's part of the work, writes a state or gives a result, has what it needs reduced first;
//   - a rank's own part of a maximum will do where the rule says so ('~', ops/factor_rule.h): that operation does not wait, and what it makes of a
//     partial sum is a partial sum;
//   - a cut value that an operation needs whole is gathered; a whole value of which a rank needs its part is cut there, for nothing.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "shard/cuts.h"

namespace lockstep {

// One collective of a stage, as often as the graph has it.
struct Collective {
  enum class Kind : uint8_t { kReduce, kGather, kSend };
  Kind kind = Kind::kReduce;
  std::string name;  // "blk.3.ff.reduce"
  int32_t layer = -1;
  size_t node = 0;  // of the whole graph, before which it stands
  int64_t terms = 1;
  // f32 numbers that each rank of the mesh gives for one token: roots of its sums, its columns, the row that it hands on.
  std::vector<int64_t> numbers;

  // Bytes that a rank receives for one token in a reduction or a gather.
  int64_t received(size_t rank) const;
  // Bytes that the rank with the most receives for one token.
  int64_t most_received() const;
  // Whose ranks give: of a send, the one that hands on.
  int32_t stage(const Mesh& mesh) const;
};

struct ShardedGraph {
  Plan plan;
  // What each rank of the mesh executes. Values 0 .. n-1 are the whole graph's, under the same ids and with this rank's shapes (Value::part says
  // which part of the whole it is); values that only ranks have (partial sums, the other form of what is both cut and whole) follow. Where
  // a stage does not have a value no node of its makes it, and states that a rank does not have are not in its list. Collectives are nodes (ops/collective.h), which come in the same order on every rank of a stage; nodes that would make
  // nothing are left out. `logits`, `final_hidden` and `hidden` are whole on every rank of the stage that makes them, and kNoValue (`hidden`:
  // left out) elsewhere.
  std::vector<Graph> ranks;
  // Of each value of the whole graph, as the operation that makes it leaves it. A weight's is that of its first use.
  std::vector<Placement> placements;
  std::vector<Collective> collectives;  // in order of execution
  std::vector<StateSpec> states;        // of the whole graph
  std::vector<int32_t> node_stages;     // of each node of the whole graph

  // Reductions and gathers of a layer, the most that any layer has.
  int64_t collectives_per_layer() const;
  // Station 5's print: Graph::Print() of the whole with the placement of each value, a line for each collective, and one where a stage begins.
  std::string Print(const Graph& whole) const;
};

// "reduce", "gather", "send"
std::string_view CollectiveKindName(Collective::Kind kind);

// Throws Refused where the plan cannot be followed: it seeds an axis that is never cut. Of more stages than layers some have nothing.
ShardedGraph Shard(const Graph& graph, const Plan& plan, const FormatOf& format_of);

}  // namespace lockstep
