// Axes that the rules of a graph's operations tie together (q's g, the cache's g, attn_output's g): each such *class* is cut as a whole or
// not at all. A factor that a rule marks whole ties nothing.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace lockstep {

using ClassId = int32_t;

struct AxisClass {
  int64_t size = 0;
  int64_t unit = 1;        // a multiple of the units of all its axes, at most `size`
  std::string leaf_names;  // of its axes on weights and states
};

class AxisClasses {
 public:
  explicit AxisClasses(const Graph& graph);

  std::span<const AxisClass> classes() const { return classes_; }
  const AxisClass& at(ClassId id) const { return classes_[static_cast<size_t>(id)]; }
  // The factors of a node's rule, bound to its operands.
  std::span<const BoundFactor> factors(size_t node) const { return factors_[node]; }

  // Of an axis of a value; of a weight as this node's operand, since each use of a weight may read another part of it.
  ClassId of_value(ValueId value, size_t axis) const {
    return id_[value_element_[static_cast<size_t>(value)] + axis];
  }
  ClassId of_operand(size_t node, size_t operand, size_t axis) const {
    return id_[OperandElement(node, operand) + axis];
  }
  // Of a factor that some operand has.
  ClassId of_factor(size_t node, const BoundFactor& factor) const;

 private:
  size_t OperandElement(size_t node, size_t operand) const;
  void Number();
  void Tie();
  size_t Find(size_t element);

  const Graph& graph_;
  std::vector<std::vector<BoundFactor>> factors_;
  // An element is one axis of one value, or of one use of a weight.
  std::vector<size_t> value_element_;  // the first of each value
  std::vector<std::vector<size_t>>
      use_element_;  // the first of each node's operands that are weights
  std::vector<size_t> parent_;
  std::vector<Axis> axes_;
  std::vector<bool> is_leaf_;
  std::vector<ClassId> id_;
  std::vector<AxisClass> classes_;
};

}  // namespace lockstep
