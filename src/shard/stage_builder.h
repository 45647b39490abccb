// The graphs of one stage's ranks, stated node by node (the rules: shard/shard.h).
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "shard/cuts.h"
#include "shard/shard.h"
#include "shard/stages.h"

namespace lockstep {

class StageBuilder {
 public:
  // What all stages add to.
  struct Common {
    const Graph& graph;
    const Cuts& cuts;
    const Stages& stages;
    ShardedGraph& sharded;
  };
  StageBuilder(const Common& common, int32_t stage);

  // The node's work, now or when what it waits for is there.
  void Add(size_t node);
  // Makes the value whole on every rank, with all that it waits for.
  void Complete(ValueId value);
  void Send(ValueId value, int32_t to_stage, int32_t tag);
  void Receive(ValueId value, int32_t from_stage, int32_t tag);
  // No node follows; `end` is the number of the next stage's first one.
  void EndNodes(size_t end) { now_ = end; }
  // Completes the results that this stage makes, and hands over the graphs.
  void Finish();

 private:
  // What one rank has. A value's form is the axes along which it is cut.
  struct Rank {
    Graph graph;
    std::map<std::pair<ValueId, CutAxes>, ValueId> forms;
    std::map<ValueId, ValueId> partials;
    std::map<int32_t, int32_t> slots;  // of the whole graph's states
  };
  enum class Status : uint8_t { kAbsent, kMade, kPartial, kWaiting };

  Status& status(ValueId value) { return status_[static_cast<size_t>(value)]; }
  bool Computed(ValueId value) const { return graph_.value(value).kind == Value::Kind::kComputed; }
  bool Result(ValueId value) const;
  bool Waits(size_t node);
  // Whether the operand is a rank's own part of a maximum, and stays so in this node.
  bool TakesOwn(size_t node, size_t operand);
  // The partial sum that a node turns into another, by ranks' own numbers; kNoValue: none.
  ValueId PassedSum(size_t node);

  void FindPartials(ValueId value, std::set<ValueId>& found);
  void Need(const std::vector<ValueId>& values);
  void ReduceTogether(const std::vector<ValueId>& values);
  void RunWaiting();

  void Emit(size_t node);
  void EmitPassed(size_t node, ValueId sum);
  std::vector<ValueId> Inputs(size_t node, size_t place);
  ValueId WeightOf(size_t node, size_t operand, size_t place);
  ValueId StateOf(ValueId state, size_t place);
  // Makes that form of a value on every rank.
  void Ensure(ValueId value, const CutAxes& axes);
  void Gather(ValueId value);
  void OwnParts(ValueId value, const CutAxes& axes);
  // The form in which the value's node left it.
  const CutAxes& made(ValueId value) const { return made_.at(value); }

  ValueId NewValue(Rank& rank, std::string name, const LocalValue& local);
  void SetValue(Rank& rank, ValueId id, const LocalValue& local);
  void AddNode(Rank& rank, OperationPtr op, std::vector<ValueId> inputs, ValueId output,
               int32_t layer);
  void Count(Collective::Kind kind, ValueId value, const std::string& suffix, int64_t terms,
             const std::vector<int64_t>& numbers);
  LocalValue Whole(ValueId value) const { return {graph_.value(value).shape, {}}; }
  int32_t LayerOf(ValueId value) const;

  const Graph& graph_;
  const Cuts& cuts_;
  const Stages& stages_;
  ShardedGraph& sharded_;
  const int32_t stage_;
  std::vector<Rank> ranks_;  // by place
  std::vector<Status> status_;
  std::vector<size_t> producer_;
  std::map<ValueId, CutAxes> made_;
  std::map<ValueId, PartialTerm> terms_;  // of values that are Partial
  std::set<std::pair<ValueId, CutAxes>> have_;
  std::vector<size_t> waiting_;
  size_t now_ = 0;  // the node that is being added
};

}  // namespace lockstep
