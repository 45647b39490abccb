#include "graph/graph.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

// Keeps what is computed from a shape within 64 bits.
constexpr uint64_t kMostElements = uint64_t{1} << 48;

}  // namespace

std::string Graph::Print() const {
  size_t width = 0;
  for (const Node& node : nodes) {
    if (node.output != kNoValue) width = std::max(width, value(node.output).name.size());
  }
  std::string text;
  for (const Node& node : nodes) {
    std::string operands;
    for (ValueId id : node.inputs) operands += (operands.empty() ? "" : ", ") + value(id).name;
    const std::string attributes = node.op->attributes();
    text += fmt::format("{:<{}} = {}({}){}{}{}{}\n",
                        node.output == kNoValue ? "" : value(node.output).name, width,
                        node.op->name(), operands, attributes.empty() ? "" : " {", attributes,
                        attributes.empty() ? "" : "}",
                        node.output == kNoValue ? "" : "  " + value(node.output).shape.ToString());
  }
  return text;
}

GraphBuilder::GraphBuilder(std::string name, std::vector<StateSpec> states) {
  graph_.name = std::move(name);
  graph_.states = std::move(states);
  Value tokens;
  tokens.kind = Value::Kind::kTokens;
  tokens.name = "tokens";
  // The number of tokens belongs to a batch, not to a graph.
  tokens.shape = {Axis{'t', 1, 1}};
  graph_.values.push_back(tokens);
  graph_.tokens = 0;
}

std::string GraphBuilder::NameIn(std::string_view name) const {
  return layer_ < 0 ? std::string(name) : fmt::format("blk.{}.{}", layer_, name);
}

ValueId GraphBuilder::Weight(const WeightSource& source, const Shape& shape) {
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const Value& value = graph_.values[i];
    if (value.kind == Value::Kind::kWeight && value.source == source && value.shape == shape) {
      return static_cast<ValueId>(i);
    }
  }
  if (!shape.Count().fits(kMostElements)) {
    throw Refused("{}: {}: expected at most 2^48 numbers, found {}", graph_.name, source.tensor,
                  shape.ToString());
  }
  Value value;
  value.kind = Value::Kind::kWeight;
  value.name = source.row_begin == 0 && source.file_rows == 0
                   ? source.tensor
                   : fmt::format("{}[{}..]{}", source.tensor, source.row_begin, source.transposed ? "^T" : "");
  value.shape = shape;
  value.source = source;
  graph_.values.push_back(value);
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId GraphBuilder::State(std::string_view name, int64_t kv_heads, int64_t dk, int64_t dv) {
  StateSpec spec;
  spec.name = NameIn(name);
  spec.kv_heads = kv_heads, spec.dk = dk, spec.dv = dv;
  return AddKvState(std::move(spec));
}

ValueId GraphBuilder::LatentState(std::string_view name, int64_t dk, int64_t dv, int64_t pool) {
  StateSpec spec;
  spec.name = NameIn(name);
  spec.kv_heads = 1, spec.dk = dk, spec.dv = dv;
  spec.values_in_keys = true;
  spec.pool = pool;
  return AddKvState(std::move(spec));
}

ValueId GraphBuilder::Input(std::string_view name, int64_t width) {
  LOCKSTEP_CHECK(graph_.input == kNoValue, "{} has one", graph_.name);
  Value value;
  value.kind = Value::Kind::kInput;
  value.name = name;
  value.shape = {Axis{'t', 1, 1}, Axis{'d', width, width}};
  graph_.values.push_back(std::move(value));
  return graph_.input = static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId GraphBuilder::OtherState(int32_t slot) { return AddKvValues(slot); }

void GraphBuilder::AddState(StateSpec spec) {
  LOCKSTEP_CHECK(std::ranges::find(graph_.states, spec.name, &StateSpec::name) == graph_.states.end(),
                 "two states {}", spec.name);
  graph_.states.push_back(std::move(spec));
}

ValueId GraphBuilder::AddKvState(StateSpec spec) {
  AddState(std::move(spec));
  return AddKvValues(static_cast<int32_t>(graph_.states.size()) - 1);
}

ValueId GraphBuilder::AddKvValues(int32_t slot) {
  const StateSpec& spec = graph_.states[static_cast<size_t>(slot)];
  for (bool is_key : {true, false}) {
    Value value;
    value.kind = Value::Kind::kState;
    value.name = spec.name + (is_key ? ".k" : ".v");
    const int64_t d = is_key ? spec.dk : spec.dv;
    value.shape = {Axis{'s', 1, kPageTokens}, Axis{'g', spec.kv_heads, 1},
                   Axis{'d', d, std::max<int64_t>(d, 1)}};
    value.state_slot = slot;
    graph_.values.push_back(value);
  }
  return static_cast<ValueId>(graph_.values.size() - 2);
}

ValueId GraphBuilder::RecurrentState(std::string_view name, const Shape& shape, const Shape& row) {
  StateSpec spec;
  spec.name = NameIn(name);
  spec.kind = StateSpec::Kind::kRecurrent;
  spec.shape = shape;
  spec.row = row;
  Value value;
  value.kind = Value::Kind::kState;
  value.name = spec.name;
  value.shape = shape;
  value.state_slot = static_cast<int32_t>(graph_.states.size());
  if (!shape.Count().fits(kMostElements) || !row.Count().fits(kMostElements)) {
    throw Refused("{}: {}: expected at most 2^48 numbers, found {}", graph_.name, spec.name,
                  shape.ToString());
  }
  AddState(std::move(spec));
  graph_.values.push_back(std::move(value));
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId GraphBuilder::Apply(std::string_view name, OperationPtr op, std::vector<ValueId> inputs) {
  const std::string full_name = NameIn(name);
  std::vector<Shape> shapes;
  for (ValueId id : inputs) shapes.push_back(shape(id));
  const FactorRule rule(op->rule());
  const std::vector<Shape> outputs =
      rule.Infer(fmt::format("{}: {}", graph_.name, full_name), shapes, op->own_axes());
  Node node{std::move(op), std::move(inputs), kNoValue, layer_};
  if (!outputs.empty()) {
    Value value;
    value.name = full_name;
    value.shape = outputs[0];
    graph_.values.push_back(value);
    node.output = static_cast<ValueId>(graph_.values.size() - 1);
  }
  graph_.nodes.push_back(std::move(node));
  return graph_.nodes.back().output;
}

Graph GraphBuilder::Finish(ValueId final_hidden, ValueId logits) {
  graph_.final_hidden = final_hidden;
  graph_.logits = logits;
  return std::move(graph_);
}

}  // namespace lockstep
