// What the tests of sharding rules are made of: graphs around single operations, the table of them, and runs over ranks.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "model_run.h"

namespace lockstep::test {

inline constexpr int64_t kBenchVocab = 300;

// A graph around one operation, which makes "tested", or else is the first that makes nothing.
class Bench {
 public:
  Bench();

  GraphBuilder& build() { return build_; }
  ValueId tokens() { return build_.tokens(); }
  // [t, axes..]: rows of a weight, so that a plan may cut any of its axes.
  ValueId Input(std::vector<Axis> axes) {
    Shape shape;
    for (const Axis& axis : axes) shape.Append(axis);
    shape.Append(build_.shape(source_)[1]);
    return build_.Apply(Name("input"), MakeLinear(0), {source_, Weight(shape)});
  }
  ValueId Weight(const Shape& shape) { return build_.Weight({Name("w")}, shape); }
  ValueId Test(OperationPtr op, std::vector<ValueId> inputs) {
    return build_.Apply("tested", std::move(op), std::move(inputs));
  }
  ValueId Apply(OperationPtr op, std::vector<ValueId> inputs) {
    return build_.Apply(Name("v"), std::move(op), std::move(inputs));
  }
  Graph Finish(ValueId result) {
    build_.MarkHidden(result);
    return build_.Finish(result, result);
  }

 private:
  std::string Name(std::string_view what) { return fmt::format("{}{}", what, ++names_); }

  GraphBuilder build_{"bench"};
  ValueId source_;
  int names_ = 0;
};

// Random weights for a graph.
void WriteWeights(const Graph& graph, const std::string& path);

// The names of axes that weights and states of a graph have, but those of tokens and positions.
std::set<char> LeafNames(const Graph& graph);

// Logits of a prompt on ranks of these shares, cut along `seeds`.
std::vector<float> Results(ModelRun& model, const std::vector<double>& shares,
                           const std::string& seeds);

// Along which of these axes numbers of ranks change the bits, and how: empty where none does.
std::string RankDifference(ModelRun& model, const std::set<char>& names);

// Whether two ranks do different parts of the operation under test.
bool Divides(const ModelRun& model, char name);

struct Case {
  std::string makes;    // the function that makes the operation
  std::string divides;  // the axes along which ranks divide it
  std::function<ValueId(Bench&)> state;
};

// At least one for each operation that a graph may state.
std::span<const Case> RuleCases();

}  // namespace lockstep::test
