#include "shard/cuts.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"

namespace lockstep {

bool LocalValue::empty() const {
  return std::ranges::any_of(shape, [](const Axis& axis) { return axis.size == 0; });
}

std::optional<ColumnRun> LocalValue::columns() const {
  int64_t size = 1, begin = 0, stride = 1;
  bool cut = false;
  for (size_t i = shape.rank(); i-- > 1;) {
    const int64_t mine = shape[i].size, whole = part.cut() ? part.whole[i].size : mine;
    // Outside a cut axis a second number would begin another run.
    if (cut && mine > 1) return std::nullopt;
    cut = cut || mine < whole;
    begin += part.cut() ? part.begin[i] * stride : 0;
    size *= mine;
    stride *= whole;
  }
  return ColumnRun{begin, begin + size};
}

Cuts::Cuts(const Graph& graph, const Plan& plan, const FormatOf& format_of)
    : graph_(graph),
      plan_(plan),
      classes_(graph),
      shares_(plan.tensor_shares.empty()
                  ? std::vector<double>(static_cast<size_t>(plan.mesh.tensor), 1.0)
                  : plan.tensor_shares),
      sharing_(static_cast<size_t>(
          std::ranges::count_if(shares_, [](double share) { return share > 0; }))),
      producer_(graph.values.size(), graph.nodes.size()),
      deals_(classes_.classes().size()),
      cut_(graph.nodes.size()),
      sums_(graph.nodes.size()) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.output != kNoValue) producer_[static_cast<size_t>(node.output)] = n;
    cut_[n].resize(classes_.factors(n).size());
    for (ValueId id : node.inputs) {
      const Value& value = graph.value(id);
      if (value.kind == Value::Kind::kWeight && !formats_.contains(id))
        formats_[id] = &format_of(value.source);
    }
  }
  if (places() == 1) return;
  Seed();
  // Whatever is given up changes what the rest needs.
  bool settled = false;
  while (!settled) {
    FindPairs();
    for (size_t n = 0; n < graph.nodes.size(); ++n) ChooseFactors(n);
    settled = !KeepStatesTogether();
    if (!settled) continue;
    FindUnits();
    settled = !DealClasses() && !FindSums() && !CheckMoves();
  }
}

Shape Cuts::ShapeOf(size_t node, size_t operand) const {
  return graph_.value(graph_.nodes[node].inputs[operand]).shape;
}

void Cuts::Seed() {
  for (char name : plan_.seeds) {
    // Tokens and positions belong to sequences.
    if (kAxisNames.find(name) == std::string_view::npos || name == 't' || name == 's')
      throw Refused("{}: plan: axis '{}': expected one of weights or states that may be cut",
                    graph_.name, name);
  }
  for (size_t id = 0; id < deals_.size(); ++id) {
    const std::string& names = classes_.at(static_cast<ClassId>(id)).leaf_names;
    const size_t seed = plan_.seeds.find_first_of(names);
    deals_[id].active = !names.empty() && seed != std::string::npos;
    deals_[id].preference = seed;
  }
}

void Cuts::FindPairs() {
  for (size_t id = 0; id < deals_.size(); ++id) deals_[id].group = static_cast<ClassId>(id);
  auto look = [&](const Shape& shape, auto class_of) {
    const std::optional<size_t> g = shape.Find('g'), r = shape.Find('r');
    if (!g || !r) return;
    const ClassId kv = class_of(*g), query = class_of(*r);
    if (kv != query && deal(kv).active && deal(query).active)
      deals_[static_cast<size_t>(query)].group = kv;
  };
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (size_t i = 0; i < graph_.nodes[n].inputs.size(); ++i)
      look(ShapeOf(n, i), [&](size_t axis) { return classes_.of_operand(n, i, axis); });
  }
}

bool Cuts::GiveUp(ClassId id) {
  Deal& given = deals_[static_cast<size_t>(id)];
  const bool was = given.active;
  given.active = false;
  return was;
}

SumLeaves Cuts::LeavesOf(size_t node, char letter) const {
  std::vector<Shape> shapes;
  std::vector<const Format*> formats;
  for (ValueId id : graph_.nodes[node].inputs) {
    shapes.push_back(graph_.value(id).shape);
    const auto format = formats_.find(id);
    formats.push_back(format == formats_.end() ? nullptr : format->second);
  }
  return graph_.nodes[node].op->sum_leaves(letter, shapes, formats);
}

bool Cuts::Reducible(size_t node, const BoundFactor& factor) const {
  switch (FactorRule(graph_.nodes[node].op->rule()).reduction()) {
    case PartialKind::kMax:
      return true;
    case PartialKind::kSum:
      return LeavesOf(node, factor.letter).length > 0;
    case PartialKind::kLse:
      return false;
  }
  return false;
}

void Cuts::ChooseFactors(size_t node) {
  const auto factors = classes_.factors(node);
  const bool makes = graph_.nodes[node].output != kNoValue;
  auto kept = [&](const BoundFactor& factor) { return !makes || factor.out[0] >= 0; };
  std::vector<size_t> candidates;
  for (size_t f = 0; f < factors.size(); ++f) {
    cut_[node][f] = false;
    const BoundFactor& factor = factors[f];
    const bool carried = std::ranges::any_of(factor.in, [](int place) { return place >= 0; });
    if (factor.whole || !carried || !deal(classes_.of_factor(node, factor)).active) continue;
    if (kept(factor) || Reducible(node, factor)) candidates.push_back(f);
  }
  // A part of the output costs no reduction; of several ways to divide it a rank has one.
  auto class_of = [&](size_t f) -> const Deal& {
    return deal(classes_.of_factor(node, factors[f]));
  };
  auto group_of = [&](size_t f) { return class_of(f).group; };
  auto order = [&](size_t f) {
    return std::tuple(!kept(factors[f]), deal(group_of(f)).preference, group_of(f));
  };
  const auto best = std::ranges::min_element(candidates, {}, order);
  if (best == candidates.end()) return;
  const size_t first = *best;
  // Query heads are dealt within those of their KV heads.
  const bool whole_group = std::ranges::any_of(candidates, [&](size_t f) {
    return classes_.of_factor(node, factors[f]) == group_of(first);
  });
  if (!whole_group) return;
  for (size_t f : candidates) {
    if (group_of(f) == group_of(first) && kept(factors[f]) == kept(factors[first]))
      cut_[node][f] = true;
  }
}

bool Cuts::KeepStatesTogether() {
  bool changed = false;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (size_t i = 0; i < graph_.nodes[n].inputs.size(); ++i) {
      if (graph_.value(graph_.nodes[n].inputs[i]).kind != Value::Kind::kState) continue;
      const CutAxes axes = operand_axes(n, i);
      for (size_t axis = 0; axis < ShapeOf(n, i).rank(); ++axis) {
        if (!std::ranges::count(axes, axis)) changed |= GiveUp(classes_.of_operand(n, i, axis));
      }
    }
  }
  return changed;
}

std::vector<const BoundFactor*> Cuts::Summed(size_t node) const {
  const auto factors = classes_.factors(node);
  std::vector<const BoundFactor*> summed;
  if (graph_.nodes[node].output == kNoValue) return summed;
  char letter = 0;
  for (size_t f = 0; f < factors.size(); ++f) {
    if (cut_[node][f] && factors[f].out[0] < 0) letter = factors[f].letter;
  }
  for (const BoundFactor& factor : factors) {
    if (factor.letter == letter) summed.push_back(&factor);
  }
  return summed;
}

void Cuts::FindUnits() {
  for (size_t id = 0; id < deals_.size(); ++id)
    deals_[id].unit = classes_.at(static_cast<ClassId>(id)).unit;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    if (partial(n) == PartialKind::kSum) NarrowUnits(n);
  }
}

// Of a summed run whole leaves are cut.
void Cuts::NarrowUnits(size_t node) {
  const std::vector<const BoundFactor*> run = Summed(node);
  const int64_t leaf = LeavesOf(node, run[0]->letter).length;
  int64_t stride = 1;
  for (size_t i = run.size(); i-- > 0;) {
    const int64_t size = run[i]->axis.size;
    const bool outermost = std::all_of(run.begin(), run.begin() + static_cast<int64_t>(i),
                                       [](const BoundFactor* f) { return f->axis.size == 1; });
    int64_t unit = leaf / std::gcd(leaf, stride);
    if (!outermost && size * stride % leaf != 0) unit = size;
    int64_t& all = deals_[static_cast<size_t>(classes_.of_factor(node, *run[i]))].unit;
    all = std::min(std::max<int64_t>(size, 1),
                   std::lcm(all, std::min(unit, std::max<int64_t>(size, 1))));
    stride *= size;
  }
}

bool Cuts::DealClasses() {
  std::map<ClassId, std::vector<ClassId>> groups;
  for (size_t id = 0; id < deals_.size(); ++id) {
    if (deals_[id].active) groups[deals_[id].group].push_back(static_cast<ClassId>(id));
  }
  bool changed = false;
  for (const auto& [group, members] : groups) changed |= DealGroup(group, members);
  return changed;
}

bool Cuts::DealGroup(ClassId group, const std::vector<ClassId>& members) {
  const int64_t size = classes_.at(group).size, unit = deal(group).unit;
  auto divisible = [&](ClassId id) {
    return sharing_ == 1 || CeilDiv(classes_.at(id).size, deal(id).unit) > 1;
  };
  Deal& kv = deals_[static_cast<size_t>(group)];
  kv.cut = CutAxis(size, unit, shares_);
  bool changed = false;
  for (ClassId id : members) {
    if (id == group) continue;
    HeadCut heads = CutHeads(size, unit, classes_.at(id).size, deal(id).unit, shares_);
    kv.cut = heads.g;
    deals_[static_cast<size_t>(id)].cut = std::move(heads.r);
  }
  if (!divisible(group)) changed |= GiveUp(group);
  for (ClassId id : members) {
    if (id != group && !divisible(id)) changed |= GiveUp(id);
    // All ranks that have any of it have it whole.
    const std::vector<AxisCut::Run>& runs = deal(id).cut.runs;
    bool whole = sharing_ > 1;
    for (size_t place = 0; place < places(); ++place)
      whole = whole && (shares_[place] == 0 || runs[place].size() == classes_.at(id).size);
    if (whole) changed |= GiveUp(id);
  }
  return changed;
}

std::optional<std::vector<ColumnRun>> SideBySide(std::span<const LocalValue> locals) {
  std::vector<ColumnRun> given;
  ColumnRun last;
  for (const LocalValue& local : locals) {
    std::optional<ColumnRun> columns =
        local.empty() ? ColumnRun{last.end, last.end} : local.columns();
    if (!columns) return std::nullopt;
    // Ranks that share heads may have the same columns: the first gives them.
    if (columns == last) columns->begin = last.end;
    if (columns->begin != last.end) return std::nullopt;
    given.push_back(*columns);
    if (columns->size() > 0) last = *columns;
  }
  return given;
}

// The innermost cut axis is inside others of which ranks have several.
bool Cuts::GiveUpInnermost(const CutAxes& axes, const std::vector<ClassId>& classes) {
  return !axes.empty() && GiveUp(classes[axes.back()]);
}

bool Cuts::FindSums() {
  bool changed = false;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    if (!partial(n)) continue;
    Sum& sum = sums_[n] = {};
    const std::vector<const BoundFactor*> run = Summed(n);
    Shape shape{Axis{'t', 1, 1}};
    CutAxes axes;
    std::vector<ClassId> classes{0};
    for (const BoundFactor* factor : run) {
      const auto f = static_cast<size_t>(factor - classes_.factors(n).data());
      if (cut_[n][f]) axes.push_back(shape.rank());
      shape.Append(factor->axis);
      classes.push_back(classes_.of_factor(n, *factor));
    }
    const bool sums = partial(n) == PartialKind::kSum;
    const SumLeaves leaves = sums ? LeavesOf(n, run[0]->letter) : SumLeaves{};
    sum.factor = run[0]->letter;
    sum.term = {*partial(n), {}, leaves, graph_.value(graph_.nodes[n].output).shape};
    std::vector<LocalValue> locals;
    for (size_t place = 0; place < places(); ++place)
      locals.push_back(LocalOf(shape, axes, place, [&](size_t axis) { return classes[axis]; }));
    if (!sums) {
      for (const LocalValue& local : locals) sum.term.leaves.push_back({0, local.empty() ? 0 : 1});
      continue;
    }
    const auto columns = SideBySide(locals);
    if (!columns) {
      changed |= GiveUpInnermost(axes, classes);
      continue;
    }
    for (const ColumnRun& run : *columns)
      sum.term.leaves.push_back(
          {CeilDiv(run.begin, leaves.length), CeilDiv(run.end, leaves.length)});
  }
  return changed;
}

// What is gathered, or cut where it is whole, is one run of columns.
bool Cuts::CheckMoves() {
  bool changed = false;
  auto check = [&](ValueId value, const CutAxes& axes, bool gathered) {
    std::vector<ClassId> classes;
    for (size_t axis = 0; axis < graph_.value(value).shape.rank(); ++axis)
      classes.push_back(classes_.of_value(value, axis));
    std::vector<LocalValue> locals;
    for (size_t place = 0; place < places(); ++place) locals.push_back(Local(value, axes, place));
    const bool runs = std::ranges::all_of(
        locals, [](const LocalValue& local) { return local.empty() || local.columns(); });
    if (!runs || (gathered && !SideBySide(locals))) changed |= GiveUpInnermost(axes, classes);
  };
  auto made = [&](ValueId value) {
    const size_t producer = producer_[static_cast<size_t>(value)];
    return producer == graph_.nodes.size() ? CutAxes{} : output_axes(producer);
  };
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (size_t i = 0; i < graph_.nodes[n].inputs.size(); ++i) {
      const ValueId value = graph_.nodes[n].inputs[i];
      if (graph_.value(value).kind != Value::Kind::kComputed) continue;
      const CutAxes needed = operand_axes(n, i);
      if (made(value) == needed) continue;
      check(value, made(value), true);
      check(value, needed, false);
    }
  }
  std::vector<ValueId> results = graph_.hidden;
  results.insert(results.end(), {graph_.logits, graph_.final_hidden});
  for (ValueId value : results) {
    if (value != kNoValue) check(value, made(value), true);
  }
  return changed;
}

bool Cuts::divides(size_t node) const { return std::ranges::count(cut_[node], true) > 0; }

std::optional<PartialKind> Cuts::partial(size_t node) const {
  const auto factors = classes_.factors(node);
  if (graph_.nodes[node].output == kNoValue) return std::nullopt;
  for (size_t f = 0; f < factors.size(); ++f) {
    if (cut_[node][f] && factors[f].out[0] < 0)
      return FactorRule(graph_.nodes[node].op->rule()).reduction();
  }
  return std::nullopt;
}

SumPart Cuts::sum_part(size_t node, size_t place) const {
  const Sum& sum = sums_[node];
  return {sum.factor, sum.term.sum, sum.term.leaves[place]};
}

bool Cuts::takes_part(size_t node, size_t place) const {
  const auto factors = classes_.factors(node);
  for (size_t f = 0; f < factors.size(); ++f) {
    if (cut_[node][f] && deal(classes_.of_factor(node, factors[f])).cut.runs[place].size() == 0)
      return false;
  }
  return !partial(node) || sums_[node].term.roots(place) > 0;
}

CutAxes Cuts::operand_axes(size_t node, size_t operand) const {
  const auto factors = classes_.factors(node);
  CutAxes axes;
  for (size_t f = 0; f < factors.size(); ++f) {
    if (cut_[node][f] && factors[f].in[operand] >= 0)
      axes.push_back(static_cast<size_t>(factors[f].in[operand]));
  }
  std::ranges::sort(axes);
  return axes;
}

CutAxes Cuts::output_axes(size_t node) const {
  const auto factors = classes_.factors(node);
  CutAxes axes;
  if (graph_.nodes[node].output == kNoValue) return axes;
  for (size_t f = 0; f < factors.size(); ++f) {
    if (cut_[node][f] && factors[f].out[0] >= 0)
      axes.push_back(static_cast<size_t>(factors[f].out[0]));
  }
  std::ranges::sort(axes);
  return axes;
}

template <typename ClassOf>
LocalValue Cuts::LocalOf(const Shape& shape, const CutAxes& axes, size_t place,
                         ClassOf class_of) const {
  LocalValue local;
  bool cut = false;
  for (size_t i = 0; i < shape.rank(); ++i) {
    Axis axis = shape[i];
    if (std::ranges::count(axes, i)) {
      const AxisCut::Run run = deal(class_of(i)).cut.runs[place];
      cut = cut || run.size() != axis.size;
      local.part.begin[i] = run.begin;
      axis.size = run.size();
    }
    local.shape.Append(axis);
  }
  if (cut) local.part.whole = shape;
  return local;
}

LocalValue Cuts::Local(ValueId value, const CutAxes& axes, size_t place) const {
  return LocalOf(graph_.value(value).shape, axes, place,
                 [&](size_t axis) { return classes_.of_value(value, axis); });
}

LocalValue Cuts::LocalOperand(size_t node, size_t operand, size_t place) const {
  return LocalOf(ShapeOf(node, operand), operand_axes(node, operand), place,
                 [&](size_t axis) { return classes_.of_operand(node, operand, axis); });
}

LocalValue Cuts::LocalState(ValueId state, size_t place) const {
  CutAxes axes;
  for (size_t axis = 0; places() > 1 && axis < graph_.value(state).shape.rank(); ++axis) {
    if (deal(classes_.of_value(state, axis)).active) axes.push_back(axis);
  }
  return Local(state, axes, place);
}

}  // namespace lockstep
