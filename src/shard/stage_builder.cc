#include "shard/stage_builder.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMostTerms = 8;

int64_t Width(const Shape& shape) {
  int64_t width = 1;
  for (size_t i = 1; i < shape.rank(); ++i) width *= shape[i].size;
  return width;
}

}  // namespace

StageBuilder::StageBuilder(const Common& common, int32_t stage)
    : graph_(common.graph),
      cuts_(common.cuts),
      stages_(common.stages),
      sharded_(common.sharded),
      stage_(stage),
      ranks_(common.cuts.places()),
      status_(common.graph.values.size()),
      producer_(common.graph.values.size()) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    if (graph_.nodes[n].output != kNoValue)
      producer_[static_cast<size_t>(graph_.nodes[n].output)] = n;
  }
  for (Rank& rank : ranks_) {
    rank.graph.name = graph_.name;
    rank.graph.values = graph_.values;
    rank.graph.tokens = graph_.tokens;
    rank.graph.input = graph_.input;
    for (Value& value : rank.graph.values) value.state_slot = -1;
  }
}

bool StageBuilder::Result(ValueId value) const {
  return value == graph_.logits || value == graph_.final_hidden ||
         std::ranges::count(graph_.hidden, value) > 0;
}

int32_t StageBuilder::LayerOf(ValueId value) const {
  return graph_.nodes[producer_[static_cast<size_t>(value)]].layer;
}

bool StageBuilder::TakesOwn(size_t node, size_t operand) {
  const ValueId value = graph_.nodes[node].inputs[operand];
  return Computed(value) && status(value) == Status::kPartial &&
         terms_.at(value).kind == PartialKind::kMax &&
         FactorRule(graph_.nodes[node].op->rule()).own_will_do(operand);
}

ValueId StageBuilder::PassedSum(size_t node) {
  const Node& stated = graph_.nodes[node];
  ValueId sum = kNoValue;
  bool own = false;
  for (size_t i = 0; i < stated.inputs.size(); ++i) {
    const ValueId value = stated.inputs[i];
    if (!Computed(value)) continue;
    if (TakesOwn(node, i)) {
      own = true;
    } else if (status(value) == Status::kPartial && sum == kNoValue &&
               terms_.at(value).kind == PartialKind::kSum) {
      sum = value;
    } else {
      return kNoValue;
    }
  }
  return own ? sum : kNoValue;
}

bool StageBuilder::Waits(size_t node) {
  const Node& stated = graph_.nodes[node];
  if (cuts_.divides(node) || stated.op->writes_state()) return false;
  return std::ranges::any_of(stated.inputs, [&](ValueId value) {
    return status(value) == Status::kPartial || status(value) == Status::kWaiting;
  });
}

void StageBuilder::Add(size_t node) {
  now_ = node;
  const Node& stated = graph_.nodes[node];
  if (const ValueId sum = PassedSum(node); sum != kNoValue && !cuts_.divides(node))
    return EmitPassed(node, sum);
  if (Waits(node)) {
    waiting_.push_back(node);
    if (stated.output != kNoValue) status(stated.output) = Status::kWaiting;
    return;
  }
  std::vector<ValueId> needed;
  for (size_t i = 0; i < stated.inputs.size(); ++i) {
    if (!TakesOwn(node, i) || !cuts_.divides(node)) needed.push_back(stated.inputs[i]);
  }
  Need(needed);
  Emit(node);
}

void StageBuilder::FindPartials(ValueId value, std::set<ValueId>& found) {
  if (status(value) == Status::kPartial) found.insert(value);
  if (status(value) != Status::kWaiting) return;
  for (ValueId input : graph_.nodes[producer_[static_cast<size_t>(value)]].inputs)
    FindPartials(input, found);
}

void StageBuilder::Need(const std::vector<ValueId>& values) {
  std::set<ValueId> partials;
  for (ValueId value : values) FindPartials(value, partials);
  if (partials.empty()) return;
  std::vector<ValueId> left(partials.begin(), partials.end());
  while (!left.empty()) {
    std::vector<ValueId> together, others;
    for (ValueId value : left) {
      const bool alike =
          graph_.value(value).shape == graph_.value(left[0]).shape && together.size() < kMostTerms;
      (alike ? together : others).push_back(value);
    }
    ReduceTogether(together);
    left = std::move(others);
  }
  RunWaiting();
}

void StageBuilder::RunWaiting() {
  const std::vector<size_t> waiting = std::move(waiting_);
  waiting_.clear();
  for (size_t node : waiting) {
    if (Waits(node)) {
      waiting_.push_back(node);
    } else {
      Emit(node);
    }
  }
}

void StageBuilder::ReduceTogether(const std::vector<ValueId>& values) {
  std::vector<PartialTerm> terms;
  for (ValueId value : values) terms.push_back(terms_.at(value));
  const Shape& shape = graph_.value(values[0]).shape;
  const int32_t layer = LayerOf(values[0]);
  std::vector<int64_t> numbers;
  for (size_t place = 0; place < ranks_.size(); ++place) {
    Rank& rank = ranks_[place];
    std::vector<ValueId> inputs;
    int64_t given = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      given += terms[i].roots(place) * Width(shape);
      if (terms[i].roots(place) > 0) inputs.push_back(rank.partials.at(values[i]));
    }
    numbers.push_back(given);
    if (inputs.empty()) inputs.push_back(graph_.tokens);
    const OperationPtr op = std::make_shared<Reduce>(terms, place);
    if (values.size() == 1) {
      SetValue(rank, values[0], Whole(values[0]));
      AddNode(rank, op, inputs, values[0], layer);
      continue;
    }
    Shape all{shape[0], Axis{'p', std::ssize(values), std::ssize(values)}};
    for (size_t i = 1; i < shape.rank(); ++i) all.Append(shape[i]);
    const ValueId together = NewValue(rank, graph_.value(values[0]).name + ".reduce", {all, {}});
    AddNode(rank, op, inputs, together, layer);
    for (size_t i = 0; i < values.size(); ++i) {
      SetValue(rank, values[i], Whole(values[i]));
      AddNode(rank, MakeTerm(static_cast<int64_t>(i)), {together}, values[i], layer);
    }
  }
  for (ValueId value : values) {
    for (Rank& rank : ranks_) rank.forms[{value, {}}] = value;
    status(value) = Status::kMade;
    made_[value] = {};
    have_.insert({value, {}});
  }
  Count(Collective::Kind::kReduce, values[0], ".reduce", std::ssize(values), numbers);
}

void StageBuilder::EmitPassed(size_t node, ValueId sum) {
  const Node& stated = graph_.nodes[node];
  const PartialTerm& term = terms_.at(sum);
  for (size_t place = 0; place < ranks_.size(); ++place) {
    if (term.roots(place) == 0) continue;
    Rank& rank = ranks_[place];
    std::vector<ValueId> inputs;
    for (ValueId value : stated.inputs) inputs.push_back(rank.partials.at(value));
    const ValueId output = NewValue(rank, graph_.value(stated.output).name + ".part",
                                    {rank.graph.value(rank.partials.at(sum)).shape, {}});
    rank.partials[stated.output] = output;
    const auto at = static_cast<size_t>(std::ranges::find(stated.inputs, sum) - stated.inputs.begin());
    AddNode(rank, MakeOverRoots(stated.op, at, term.roots(place)), inputs, output, stated.layer);
  }
  terms_[stated.output] = term;
  terms_[stated.output].shape = graph_.value(stated.output).shape;
  status(stated.output) = Status::kPartial;
  sharded_.placements[static_cast<size_t>(stated.output)] = Placement::Partial(term.kind);
}

void StageBuilder::Emit(size_t node) {
  const Node& stated = graph_.nodes[node];
  for (size_t i = 0; i < stated.inputs.size(); ++i) {
    if (Computed(stated.inputs[i]) && !TakesOwn(node, i))
      Ensure(stated.inputs[i], cuts_.operand_axes(node, i));
  }
  const std::optional<PartialKind> partial = cuts_.partial(node);
  const CutAxes axes = cuts_.output_axes(node);
  for (size_t place = 0; place < ranks_.size(); ++place) {
    if (!cuts_.takes_part(node, place)) continue;
    Rank& rank = ranks_[place];
    const std::vector<ValueId> inputs = Inputs(node, place);
    OperationPtr op = stated.op;
    if (partial == PartialKind::kSum) op = op->part_of_sum(cuts_.sum_part(node, place));
    ValueId output = stated.output;
    if (output != kNoValue) {
      LocalValue local = cuts_.Local(output, axes, place);
      const std::string& name = graph_.value(output).name;
      if (partial) {
        if (partial == PartialKind::kSum) {
          Shape roots{local.shape[0], Axis{'p', cuts_.term(node).roots(place), 1}};
          for (size_t i = 1; i < local.shape.rank(); ++i) roots.Append(local.shape[i]);
          local = {roots, {}};
        }
        output = rank.partials[stated.output] = NewValue(rank, name + ".part", local);
      } else {
        // Results keep their number for the whole.
        if (!axes.empty() && Result(output)) {
          output = NewValue(rank, name + ".own", local);
        } else {
          SetValue(rank, output, local);
        }
        rank.forms[{stated.output, axes}] = output;
      }
    }
    AddNode(rank, op, inputs, output, stated.layer);
  }
  if (stated.output == kNoValue) return;
  Placement& placement = sharded_.placements[static_cast<size_t>(stated.output)];
  if (partial) {
    terms_[stated.output] = cuts_.term(node);
    status(stated.output) = Status::kPartial;
    placement = Placement::Partial(*partial);
    return;
  }
  status(stated.output) = Status::kMade;
  made_[stated.output] = axes;
  have_.insert({stated.output, axes});
  placement = axes.empty() ? Placement::Replicate() : Placement::Shard(axes);
}

std::vector<ValueId> StageBuilder::Inputs(size_t node, size_t place) {
  const Node& stated = graph_.nodes[node];
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < stated.inputs.size(); ++i) {
    const ValueId value = stated.inputs[i];
    switch (graph_.value(value).kind) {
      case Value::Kind::kTokens:
      case Value::Kind::kInput:
        inputs.push_back(value);
        break;
      case Value::Kind::kWeight:
        inputs.push_back(WeightOf(node, i, place));
        break;
      case Value::Kind::kState:
        inputs.push_back(StateOf(value, place));
        break;
      case Value::Kind::kComputed:
        inputs.push_back(TakesOwn(node, i)
                             ? ranks_[place].partials.at(value)
                             : ranks_[place].forms.at({value, cuts_.operand_axes(node, i)}));
        break;
    }
  }
  return inputs;
}

ValueId StageBuilder::WeightOf(size_t node, size_t operand, size_t place) {
  Rank& rank = ranks_[place];
  const ValueId weight = graph_.nodes[node].inputs[operand];
  const LocalValue local = cuts_.LocalOperand(node, operand, place);
  const CutAxes axes = cuts_.operand_axes(node, operand);
  if (!have_.contains({weight, axes}) && place == 0 && made_.emplace(weight, axes).second)
    sharded_.placements[static_cast<size_t>(weight)] =
        axes.empty() ? Placement::Replicate() : Placement::Shard(axes);
  // Uses of one weight may read different parts of it.
  bool first = true;
  for (const auto& [form, id] : rank.forms) {
    if (form.first != weight) continue;
    first = false;
    const Value& held = rank.graph.value(id);
    if (held.shape == local.shape && held.part.whole == local.part.whole &&
        held.part.begin == local.part.begin)
      return id;
  }
  ValueId id = weight;
  if (first) {
    SetValue(rank, weight, local);
  } else {
    rank.graph.values.push_back(graph_.value(weight));
    id = static_cast<ValueId>(rank.graph.values.size() - 1);
    SetValue(rank, id, local);
  }
  rank.forms[{weight, axes}] = id;
  return id;
}

ValueId StageBuilder::StateOf(ValueId state, size_t place) {
  Rank& rank = ranks_[place];
  const int32_t whole_slot = graph_.value(state).state_slot;
  const LocalValue local = cuts_.LocalState(state, place);
  const auto [slot, fresh] =
      rank.slots.try_emplace(whole_slot, static_cast<int32_t>(rank.graph.states.size()));
  if (fresh) {
    StateSpec spec = graph_.states[static_cast<size_t>(whole_slot)];
    if (spec.kind == StateSpec::Kind::kKv) {
      spec.kv_heads = local.shape[1].size;
    } else {
      spec.shape = local.shape;
      // The log's row has the state's axes by name.
      Shape row;
      for (Axis axis : spec.row) {
        for (size_t i = 0; i < local.shape.rank() && local.part.cut(); ++i) {
          const Axis& whole = local.part.whole[i];
          if (whole.name == axis.name && whole.size == axis.size) axis.size = local.shape[i].size;
        }
        row.Append(axis);
      }
      spec.row = row;
    }
    rank.graph.states.push_back(std::move(spec));
  }
  SetValue(rank, state, local);
  rank.graph.values[static_cast<size_t>(state)].state_slot = slot->second;
  return state;
}

void StageBuilder::Ensure(ValueId value, const CutAxes& axes) {
  // Another stage has made it, and may have left it to this one to make it again.
  if (status(value) == Status::kAbsent) Emit(producer_[static_cast<size_t>(value)]);
  if (have_.contains({value, axes})) return;
  if (!have_.contains({value, {}})) Gather(value);
  if (!axes.empty()) OwnParts(value, axes);
}

void StageBuilder::Gather(ValueId value) {
  std::vector<LocalValue> locals;
  for (size_t place = 0; place < ranks_.size(); ++place)
    locals.push_back(cuts_.Local(value, made(value), place));
  const std::vector<ColumnRun> columns = SideBySide(locals).value();
  std::vector<int64_t> numbers;
  for (const ColumnRun& run : columns) numbers.push_back(run.size());
  const Shape& whole = graph_.value(value).shape;
  for (size_t place = 0; place < ranks_.size(); ++place) {
    Rank& rank = ranks_[place];
    const bool gives = columns[place].size() > 0;
    const ValueId from = gives ? rank.forms.at({value, made(value)}) : graph_.tokens;
    ValueId output = value;
    if (Result(value)) {
      SetValue(rank, value, Whole(value));
    } else {
      output = NewValue(rank, graph_.value(value).name + ".whole", Whole(value));
    }
    AddNode(rank, std::make_shared<lockstep::Gather>(columns, place, locals[place].shape, whole),
            {from}, output, LayerOf(value));
    rank.forms[{value, {}}] = output;
  }
  have_.insert({value, {}});
  Count(Collective::Kind::kGather, value, ".gather", 1, numbers);
}

void StageBuilder::OwnParts(ValueId value, const CutAxes& axes) {
  for (size_t place = 0; place < ranks_.size(); ++place) {
    Rank& rank = ranks_[place];
    const LocalValue local = cuts_.Local(value, axes, place);
    if (local.empty()) continue;
    const ValueId whole = rank.forms.at({value, {}});
    ValueId own = whole;
    if (local.part.cut()) {
      own = NewValue(rank, graph_.value(value).name + ".own", local);
      AddNode(rank,
              MakeOwnPart(local.columns().value_or(ColumnRun{}), graph_.value(value).shape,
                          local.shape),
              {whole}, own, LayerOf(value));
    }
    rank.forms[{value, axes}] = own;
  }
  have_.insert({value, axes});
}

void StageBuilder::Complete(ValueId value) {
  Need({value});
  Ensure(value, {});
}

void StageBuilder::Send(ValueId value, int32_t to_stage, int32_t tag) {
  const auto tensor = static_cast<int32_t>(ranks_.size());
  std::vector<int64_t> numbers;
  for (int32_t place = 0; place < tensor; ++place) {
    Rank& rank = ranks_[static_cast<size_t>(place)];
    AddNode(rank, std::make_shared<lockstep::Send>(to_stage * tensor + place, tag),
            {rank.forms.at({value, {}})}, kNoValue, LayerOf(value));
    numbers.push_back(Width(graph_.value(value).shape));
  }
  Count(Collective::Kind::kSend, value, ".send", 1, numbers);
}

void StageBuilder::Receive(ValueId value, int32_t from_stage, int32_t tag) {
  const auto tensor = static_cast<int32_t>(ranks_.size());
  for (int32_t place = 0; place < tensor; ++place) {
    Rank& rank = ranks_[static_cast<size_t>(place)];
    SetValue(rank, value, Whole(value));
    AddNode(rank,
            std::make_shared<lockstep::Receive>(from_stage * tensor + place, tag,
                                                graph_.value(value).shape),
            {graph_.tokens}, value, LayerOf(value));
    rank.forms[{value, {}}] = value;
  }
  status(value) = Status::kMade;
  made_[value] = {};
  have_.insert({value, {}});
}

void StageBuilder::Finish() {
  auto made_here = [&](ValueId value) {
    return value != kNoValue && stages_.of_node[producer_[static_cast<size_t>(value)]] == stage_;
  };
  std::vector<ValueId> hidden;
  std::ranges::copy_if(graph_.hidden, std::back_inserter(hidden), made_here);
  const ValueId final_hidden = made_here(graph_.final_hidden) ? graph_.final_hidden : kNoValue;
  const ValueId logits = made_here(graph_.logits) ? graph_.logits : kNoValue;
  std::vector<ValueId> results = hidden;
  results.insert(results.end(), {final_hidden, logits});
  for (ValueId value : results) {
    if (value != kNoValue) Complete(value);
  }
  const auto tensor = static_cast<int32_t>(ranks_.size());
  for (int32_t place = 0; place < tensor; ++place) {
    Rank& rank = ranks_[static_cast<size_t>(place)];
    rank.graph.hidden = hidden;
    rank.graph.final_hidden = final_hidden;
    rank.graph.logits = logits;
    sharded_.ranks[static_cast<size_t>(stage_ * tensor + place)] = std::move(rank.graph);
  }
}

ValueId StageBuilder::NewValue(Rank& rank, std::string name, const LocalValue& local) {
  Value& value = rank.graph.values.emplace_back();
  value.name = std::move(name);
  value.shape = local.shape;
  value.part = local.part;
  return static_cast<ValueId>(rank.graph.values.size() - 1);
}

void StageBuilder::SetValue(Rank& rank, ValueId id, const LocalValue& local) {
  Value& value = rank.graph.values[static_cast<size_t>(id)];
  value.shape = local.shape;
  value.part = local.part;
}

// The operation's own rule agrees with what is expected of it.
void StageBuilder::AddNode(Rank& rank, OperationPtr op, std::vector<ValueId> inputs, ValueId output,
                           int32_t layer) {
  std::vector<Shape> shapes;
  for (ValueId id : inputs) shapes.push_back(rank.graph.value(id).shape);
  const std::string name =
      output == kNoValue ? std::string(op->name()) : rank.graph.value(output).name;
  const std::vector<Shape> made =
      FactorRule(op->rule())
          .Infer(fmt::format("{}: {}", graph_.name, name), shapes, op->own_axes());
  if (output != kNoValue) {
    const Shape& expected = rank.graph.value(output).shape;
    LOCKSTEP_CHECK(made.size() == 1 && made[0] == expected, "{}: {} where {} is expected", name,
                   made.empty() ? "nothing" : made[0].ToString(), expected.ToString());
  }
  rank.graph.nodes.push_back({std::move(op), std::move(inputs), output, layer});
}

void StageBuilder::Count(Collective::Kind kind, ValueId value, const std::string& suffix,
                         int64_t terms, const std::vector<int64_t>& numbers) {
  Collective collective{
      kind,           graph_.value(value).name + suffix,
      LayerOf(value), now_,
      terms,          std::vector<int64_t>(static_cast<size_t>(sharded_.plan.mesh.ranks()))};
  std::ranges::copy(numbers, collective.numbers.begin() + stage_ * std::ssize(ranks_));
  sharded_.collectives.push_back(std::move(collective));
}

}  // namespace lockstep
