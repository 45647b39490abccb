#include "exec/program.h"

#include <algorithm>
#include <set>

#include "base/checked.h"
#include "base/error.h"

namespace lockstep {
namespace {

int64_t RowElements(const Shape& shape) {
  return static_cast<int64_t>(shape.Count().value_or(0)) / shape[0].size;
}

int64_t SlotBytes(const Slot& slot, int64_t rows) {
  return slot.quantized ? QuantizedRows::Bytes(rows, slot.width)
                        : RoundUp(rows * slot.width * 4, 64);
}

std::string_view SplitName(Split split) {
  switch (split) {
    case Split::kTokens:
      return "tokens";
    case Split::kColumns:
      return "columns";
    default:
      return "own";
  }
}

// What is needed of each node's output; `collectives`: at least, of those of the graph in order, none where there are none.
std::vector<Demand> NodeDemand(const Graph& graph, std::span<const ValueId> kept,
                               std::span<const Demand> collectives) {
  std::vector<Demand> of_value(graph.values.size(), Demand::kNone), of_node(graph.nodes.size());
  for (ValueId id : kept) of_value[static_cast<size_t>(id)] = Demand::kOutputs;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    Demand& demand = of_node[n];
    demand = node.op->writes_state() ? Demand::kAll : of_value[static_cast<size_t>(node.output)];
    if (node.op->collective() && !collectives.empty()) {
      demand = std::max(demand, collectives.back());
      collectives = collectives.first(collectives.size() - 1);
    }
    for (ValueId id : node.inputs) {
      Demand& of_input = of_value[static_cast<size_t>(id)];
      of_input = std::max(of_input, demand);
    }
  }
  return of_node;
}

}  // namespace

std::vector<Demand> CollectiveDemand(std::span<const Graph> ranks, const ProgramOptions& options) {
  std::vector<Demand> together;
  // What a rank must make raises what it needs of earlier collectives, and so what others must make.
  for (bool settled = false; !settled;) {
    const std::vector<Demand> before = together;
    for (const Graph& graph : ranks) {
      const std::vector<Demand> needed = NodeDemand(graph, KeptValues(graph, options), before);
      size_t at = 0;
      for (size_t n = 0; n < graph.nodes.size(); ++n) {
        if (!graph.nodes[n].op->collective()) continue;
        if (at == together.size()) together.push_back(Demand::kNone);
        together[at] = std::max(together[at], needed[n]);
        ++at;
      }
    }
    settled = together == before;
  }
  return together;
}

std::vector<ValueId> KeptValues(const Graph& graph, const ProgramOptions& options) {
  std::vector<ValueId> kept;
  if (options.logits) kept.push_back(graph.logits);
  if (options.hidden) {
    for (ValueId id : graph.hidden) kept.push_back(id);
    kept.push_back(graph.final_hidden);
  }
  for (ValueId id : options.kept) {
    const auto has = [id](const std::vector<ValueId>& values) {
      return std::ranges::find(values, id) != values.end();
    };
    if ((id == graph.final_hidden || has(graph.hidden)) && !has(kept)) kept.push_back(id);
  }
  std::erase(kept, kNoValue);
  return kept;
}

Program::Program(const Graph& graph, const std::function<bool(ValueId)>& quantized,
                 const ProgramOptions& options, std::span<const Demand> collectives)
    : options_(options), kept_(KeptValues(graph, options)) {
  demand_ = NodeDemand(graph, kept_, collectives);
  Lower(graph, quantized);
  PlaceBarriers(graph);
  PlaceBuffers();
}

int32_t Program::AddSlot(ValueId value, RowSet rows, bool quantized, int64_t width) {
  slots_.push_back({value, rows, quantized, width});
  return static_cast<int32_t>(slots_.size()) - 1;
}

int32_t Program::FindSlot(ValueId value, RowSet rows, bool quantized) const {
  auto at = std::ranges::find_if(slots_, [&](const Slot& slot) {
    return slot.value == value && slot.rows == rows && slot.quantized == quantized;
  });
  return at == slots_.end() ? -1 : static_cast<int32_t>(at - slots_.begin());
}

int32_t Program::result(ValueId value) const {
  return std::ranges::find(kept_, value) == kept_.end() ? -1
                                                        : FindSlot(value, RowSet::kOutputs, false);
}

void Program::AddStep(Step step) {
  const auto index = static_cast<int32_t>(steps_.size());
  for (int32_t slot : step.in) {
    if (slot >= 0) slots_[static_cast<size_t>(slot)].last_use = index;
  }
  if (step.out >= 0) {
    slots_[static_cast<size_t>(step.out)].defined = index;
    slots_[static_cast<size_t>(step.out)].last_use = index;
  }
  steps_.push_back(std::move(step));
}

int32_t Program::SlotOf(const Graph& graph, ValueId value, RowSet rows, bool quantized) {
  int32_t found = FindSlot(value, rows, quantized);
  if (found >= 0) return found;
  const std::string& name = graph.value(value).name;
  const int64_t width = RowElements(graph.value(value).shape);
  Step step;
  step.rows = rows;
  step.in_values = {value};
  if (quantized) {
    step.in = {SlotOf(graph, value, rows, false)};
    step.op = MakeQuantize();
    step.name = name + ".q8";
  } else {
    LOCKSTEP_CHECK(rows == RowSet::kOutputs, "{} is read before it is written", name);
    step.in = {SlotOf(graph, value, RowSet::kAll, false)};
    step.op = MakeSelectRows();
    step.name = name + ".selected";
  }
  step.out = AddSlot(value, rows, quantized, width);
  const int32_t slot = step.out;
  AddStep(std::move(step));
  return slot;
}

void Program::Lower(const Graph& graph, const std::function<bool(ValueId)>& quantized) {
  if (graph.input != kNoValue) {
    input_ = AddSlot(graph.input, RowSet::kAll, false, RowElements(graph.value(graph.input).shape));
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const Demand demand = demand_[n];
    if (demand == Demand::kNone) continue;
    Step step;
    step.op = node.op;
    step.rows = demand == Demand::kAll ? RowSet::kAll : RowSet::kOutputs;
    step.in_values = node.inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      const bool codes = std::ranges::any_of(
          node.op->multiplied_by(i), [&](size_t weight) { return quantized(node.inputs[weight]); });
      const Value::Kind kind = graph.value(id).kind;
      const bool rows = kind == Value::Kind::kComputed || kind == Value::Kind::kInput;
      step.in.push_back(rows ? SlotOf(graph, id, step.rows, codes) : -1);
    }
    if (node.output != kNoValue) {
      step.name = graph.value(node.output).name;
      step.out =
          AddSlot(node.output, step.rows, false, RowElements(graph.value(node.output).shape));
    } else {
      step.name = fmt::format("blk.{}.{}", node.layer, node.op->name());
    }
    AddStep(std::move(step));
  }
  // Results of which all rows were computed.
  for (ValueId id : kept_) SlotOf(graph, id, RowSet::kOutputs, false);
  for (ValueId id : kept_) {
    slots_[static_cast<size_t>(result(id))].last_use = static_cast<int32_t>(steps_.size());
  }
}

void Program::PlaceBarriers(const Graph& graph) {
  // What each slot's writer did, for slots written since the last barrier.
  struct Written {
    Split split;
    RowSet rows;
    int64_t width;
  };
  std::vector<std::pair<int32_t, Written>> fresh;
  std::set<int32_t> states_written;
  bool met = false;
  for (Step& step : steps_) {
    const Split wanted = step.op->split();
    std::vector<Written> inputs;
    for (int32_t slot : step.in) {
      for (const auto& [written_slot, written] : fresh) {
        if (written_slot == slot) inputs.push_back(written);
      }
    }
    const int64_t width = step.out >= 0 ? slots_[static_cast<size_t>(step.out)].width : 0;
    // A thread may go on where it reads only what it wrote itself: same rows, dealt in the same way.
    auto own_part = [&](Split split) {
      return (split == Split::kTokens || split == Split::kColumns) &&
             std::ranges::all_of(inputs, [&](const Written& w) {
               return w.split == split && w.rows == step.rows &&
                      (split == Split::kTokens || w.width == width);
             });
    };
    bool barrier = !inputs.empty();
    step.split = wanted;
    if (wanted == Split::kEither) {
      step.split = !inputs.empty() ? inputs[0].split : Split::kColumns;
      barrier = !own_part(step.split);
      if (barrier) step.split = Split::kColumns;
    } else if (wanted == Split::kTokens) {
      barrier = !own_part(Split::kTokens);
    }
    std::set<int32_t> states;
    for (ValueId id : step.in_values) {
      const Value& value = graph.value(id);
      if (value.kind == Value::Kind::kState) states.insert(value.state_slot);
    }
    for (int32_t state : states) barrier |= states_written.contains(state);
    if (met && step.op->meets()) barrier = true;
    if (step.op->collective()) barrier = true;
    step.barrier = barrier;
    if (barrier) {
      fresh.clear();
      states_written.clear();
      met = false;
    }
    met |= step.op->meets();
    if (step.out >= 0) fresh.push_back({step.out, {step.split, step.rows, width}});
    if (step.op->writes_state()) states_written.merge(states);
  }
}

void Program::PlaceBuffers() {
  const auto count = static_cast<int32_t>(steps_.size());
  // A buffer is free from the first barrier after its last use: until then a slow thread may still read it.
  std::vector<int32_t> free_from(static_cast<size_t>(count) + 1, count + 1);
  int32_t next = count + 1;
  for (int32_t i = count; i-- > 0;) {
    free_from[static_cast<size_t>(i)] = next;
    if (steps_[static_cast<size_t>(i)].barrier) next = i;
  }
  // What a collective reads, slower ranks read until they come to the next.
  std::vector<int32_t> read_until(static_cast<size_t>(count) + 1, count);
  for (int32_t i = count, seen = count; i-- > 0;) {
    read_until[static_cast<size_t>(i)] = seen;
    if (steps_[static_cast<size_t>(i)].op->collective()) seen = i;
  }
  for (int32_t i = 0; i < count; ++i) {
    const Step& step = steps_[static_cast<size_t>(i)];
    if (!step.op->collective()) continue;
    for (int32_t slot : step.in) {
      if (slot < 0) continue;
      int32_t& last = slots_[static_cast<size_t>(slot)].last_use;
      last = std::max(last, read_until[static_cast<size_t>(i)]);
    }
  }
  std::vector<size_t> order(slots_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return slots_[i].defined; });
  std::vector<const Slot*> placed;
  auto end_of = [&](const Slot& slot) { return free_from[static_cast<size_t>(slot.last_use)]; };
  for (size_t i : order) {
    Slot& slot = slots_[i];
    slot.bytes =
        SlotBytes(slot, slot.rows == RowSet::kAll ? options_.max_tokens : options_.max_outputs);
    // The lowest gap among the buffers that live while this one does.
    std::vector<const Slot*> living;
    for (const Slot* other : placed) {
      if (end_of(*other) > slot.defined) living.push_back(other);
    }
    std::ranges::sort(living, {}, [](const Slot* other) { return other->offset; });
    int64_t offset = 0;
    for (const Slot* other : living) {
      if (offset + slot.bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    slot.offset = offset;
    arena_bytes_ = std::max(arena_bytes_, offset + slot.bytes);
    placed.push_back(&slot);
  }
}

int64_t Program::barriers() const {
  return std::ranges::count_if(steps_, [](const Step& step) { return step.barrier; });
}

std::string Program::Print(const Graph& graph) const {
  std::string text = fmt::format(
      "{} steps, {} barriers, {} bytes of buffers for {} tokens and {} outputs\n", steps_.size(),
      barriers(), arena_bytes_, options_.max_tokens, options_.max_outputs);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    std::string operands;
    for (size_t j = 0; j < step.in_values.size(); ++j) {
      operands += (j == 0 ? "" : ", ") + graph.value(step.in_values[j]).name;
      if (step.in[j] >= 0 && slots_[static_cast<size_t>(step.in[j])].quantized) operands += ".q8";
    }
    text += fmt::format("{}{:4} {} = {}({})  {}, {} rows", step.barrier ? "---- barrier\n" : "", i,
                        step.name, step.op->name(), operands, SplitName(step.split),
                        step.rows == RowSet::kAll ? "all" : "output");
    if (step.out >= 0)
      text += fmt::format("  @{:#x}", slots_[static_cast<size_t>(step.out)].offset);
    text += '\n';
  }
  return text;
}

}  // namespace lockstep
