#include "shard/axis_classes.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace lockstep {
namespace {

// lcm, or `most` where it is larger.
int64_t BoundedLcm(int64_t a, int64_t b, int64_t most) {
  const int64_t by = b / std::gcd(a, b);
  return a > most / by ? most : std::min(a * by, most);
}

}  // namespace

AxisClasses::AxisClasses(const Graph& graph) : graph_(graph) {
  Number();
  Tie();
  id_.resize(parent_.size(), -1);
  for (size_t element = 0; element < parent_.size(); ++element) {
    const size_t root = Find(element);
    if (id_[root] < 0) {
      id_[root] = static_cast<ClassId>(classes_.size());
      classes_.push_back({axes_[root].size, 1, ""});
    }
    id_[element] = id_[root];
    AxisClass& members = classes_[static_cast<size_t>(id_[element])];
    members.unit =
        BoundedLcm(members.unit, axes_[element].unit, std::max<int64_t>(members.size, 1));
    if (is_leaf_[element] && members.leaf_names.find(axes_[element].name) == std::string::npos)
      members.leaf_names += axes_[element].name;
  }
}

void AxisClasses::Number() {
  auto add = [&](const Shape& shape, bool leaf) {
    const size_t first = axes_.size();
    for (const Axis& axis : shape) {
      axes_.push_back(axis);
      is_leaf_.push_back(leaf);
    }
    return first;
  };
  for (const Value& value : graph_.values)
    value_element_.push_back(add(value.shape, value.kind == Value::Kind::kState));
  for (const Node& node : graph_.nodes) {
    std::vector<size_t>& uses = use_element_.emplace_back();
    for (ValueId id : node.inputs) {
      const Value& value = graph_.value(id);
      const bool weight = value.kind == Value::Kind::kWeight;
      uses.push_back(weight ? add(value.shape, true) : value_element_[static_cast<size_t>(id)]);
    }
  }
  parent_.resize(axes_.size());
  std::iota(parent_.begin(), parent_.end(), size_t{0});
}

void AxisClasses::Tie() {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    std::vector<Shape> shapes;
    for (ValueId id : node.inputs) shapes.push_back(graph_.value(id).shape);
    const FactorRule rule(node.op->rule());
    factors_.push_back(rule.Bind(fmt::format("{}: {}", graph_.name, node.op->name()), shapes,
                                 node.op->own_axes()));
    for (const BoundFactor& factor : factors_.back()) {
      if (factor.whole) continue;
      std::vector<size_t> elements;
      for (size_t i = 0; i < factor.in.size(); ++i) {
        if (factor.in[i] >= 0)
          elements.push_back(OperandElement(n, i) + static_cast<size_t>(factor.in[i]));
      }
      // What an operation makes of no operand's is not cut.
      if (elements.empty()) continue;
      if (node.output != kNoValue && factor.out[0] >= 0)
        elements.push_back(value_element_[static_cast<size_t>(node.output)] +
                           static_cast<size_t>(factor.out[0]));
      for (size_t element : elements) parent_[Find(element)] = Find(elements[0]);
    }
  }
}

size_t AxisClasses::Find(size_t element) {
  while (parent_[element] != element) {
    parent_[element] = parent_[parent_[element]];
    element = parent_[element];
  }
  return element;
}

size_t AxisClasses::OperandElement(size_t node, size_t operand) const {
  return use_element_[node][operand];
}

ClassId AxisClasses::of_factor(size_t node, const BoundFactor& factor) const {
  for (size_t i = 0; i < factor.in.size(); ++i) {
    if (factor.in[i] >= 0) return of_operand(node, i, static_cast<size_t>(factor.in[i]));
  }
  LOCKSTEP_CHECK(false, "{}: factor {} is in no operand", graph_.nodes[node].op->name(),
                 factor.letter);
}

}  // namespace lockstep
