// Station 3, the graph: what a model computes, with named axes, and nothing of where or how.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/operations.h"

namespace lockstep {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// A weight as the file holds it. A matrix [n.., k..] lies as rows of k; a fused tensor gives several weights, each a run of its rows.
// Rows of experts [e, n, k] are counted within an expert; files may hold each expert in a tensor of its own, where '*' in the name
// stands for its number.
struct WeightSource {
  std::string tensor;     // name in the file
  int64_t row_begin = 0;  // first of this weight's rows
  int64_t file_rows = 0;  // rows of the whole tensor, 0: as many as the weight has
  // Where heads are woven in the file, the weight's rows are runs: run_rows rows at row_begin, and again every run_stride rows. 0: one run.
  int64_t run_rows = 0;
  int64_t run_stride = 0;
  // Each expert's (or head's) rows [k, n] of the file are the weight's [n, k]: columns become rows. Held as f32 where the file's type has blocks.
  bool transposed = false;
  // In the file of the model beside which the graph runs, where that is another.
  bool of_model = false;

  bool operator==(const WeightSource&) const = default;
};

// Which part of a value a rank holds: of every axis of the whole the run that starts at `begin` and is as long as the value's own axis.
struct Part {
  Shape whole;  // no axes: the value is the whole
  std::array<int64_t, Shape::kCapacity> begin{};

  bool cut() const { return whole.rank() != 0; }
};

struct Value {
  enum class Kind { kTokens, kWeight, kState, kComputed, kInput };
  Kind kind = Kind::kComputed;
  std::string name;  // "blk.3.q", for prints and errors
  Shape shape;
  WeightSource source;      // weights
  int32_t state_slot = -1;  // states: index into Graph::states
  Part part;                // in a rank's graph (shard/shard.h)
};

// What a sequence keeps of one layer: K and V of each position in pages (ops/kv_layout.h), or a recurrent state in its slot (ops/recurrent.h).
struct StateSpec {
  enum class Kind { kKv, kRecurrent };

  std::string name;  // of no other state of a graph, or of one beside it
  int64_t kv_heads = 0, dk = 0, dv = 0;  // kKv
  Kind kind = Kind::kKv;
  // kRecurrent, f32: what is carried from token to token, and what one token adds to the log. A plan that cuts a named axis cuts both.
  Shape shape = {}, row = {};
  bool values_in_keys = false;  // kKv
  int64_t pool = 1;             // kKv: positions of an entry
};

struct Node {
  OperationPtr op;
  std::vector<ValueId> inputs;
  ValueId output = kNoValue;  // none for operations that only write a state
  int32_t layer = -1;
};

// A graph may run beside another, as a draft's does beside its model's: its states are then those of the other, which it may read, and after
// them its own, so that a page or a slot made for these holds what both keep of a sequence.
struct Graph {
  std::string name;  // of the architecture
  std::vector<Value> values;
  std::vector<Node> nodes;  // in the order they were stated, which is an order of execution
  std::vector<StateSpec> states;
  ValueId tokens = kNoValue;
  ValueId input = kNoValue;  // rows that come with a batch beside the tokens, [t, d]; of few graphs
  ValueId logits = kNoValue;  // [t, v]
  std::vector<ValueId>
      hidden;  // the residual stream after the embedding and after each layer, [t, k]
  ValueId final_hidden = kNoValue;  // after the final norm

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  // One line a node: "blk.0.q  = linear(blk.0.norm, blk.0.attn_q.weight)  [t, g=3, r=3, d=64]".
  std::string Print() const;
};

// States a graph. Every call checks its operands against the operation's rule and throws Refused "ARCH: blk.3.q: ..." where they
// do not fit.
class GraphBuilder {
 public:
  // states: of the graph beside which this one runs.
  explicit GraphBuilder(std::string name, std::vector<StateSpec> states = {});

  // Names given from here on are "blk.LAYER.NAME".
  void SetLayer(int32_t layer) { layer_ = layer; }
  int32_t layer() const { return layer_; }

  ValueId tokens() const { return graph_.tokens; }
  // The rows that come with a batch, of this width; at most once.
  ValueId Input(std::string_view name, int64_t width);
  // A weight with these axes, slowest first. Asking twice for one source gives one value.
  ValueId Weight(const WeightSource& source, const Shape& shape);
  // K of a state; V is the value after it.
  ValueId State(std::string_view name, int64_t kv_heads, int64_t dk, int64_t dv);
  ValueId RecurrentState(std::string_view name, const Shape& shape, const Shape& row);
  // K of a state of one KV head whose V is the first dv numbers of K (0: keys alone), with an entry for every `pool` positions.
  ValueId LatentState(std::string_view name, int64_t dk, int64_t dv, int64_t pool = 1);
  // K of a state of the other graph, with K and V, by its slot there.
  ValueId OtherState(int32_t slot);
  ValueId Apply(std::string_view name, OperationPtr op, std::vector<ValueId> inputs);
  const Shape& shape(ValueId id) const { return graph_.value(id).shape; }
  const StateSpec& state(ValueId id) const {
    return graph_.states[static_cast<size_t>(graph_.value(id).state_slot)];
  }

  void MarkHidden(ValueId id) { graph_.hidden.push_back(id); }
  // Ends the graph.
  Graph Finish(ValueId final_hidden, ValueId logits);

 private:
  std::string NameIn(std::string_view name) const;
  void AddState(StateSpec spec);
  ValueId AddKvState(StateSpec spec);
  ValueId AddKvValues(int32_t slot);

  Graph graph_;
  int32_t layer_ = -1;
};

}  // namespace lockstep
