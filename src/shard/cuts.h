// What the ranks of a stage share of a graph, found from the rules of its operations alone: which axes are cut, and where.
//
// A class of axes (shard/axis_classes.h) is cut where the plan seeds one of its axes on a weight or a state, at multiples of what every rule and
// format that meets it needs; one that cannot be cut so stays whole. A node does a rank's part of what is cut where its rule allows it; elsewhere
// it takes its operands whole, and what it makes is whole.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "ops/collective.h"
#include "shard/axis_classes.h"
#include "shard/plan.h"

namespace lockstep {

// The format of a weight's tensor in the file; what is cut may not straddle its blocks.
using FormatOf = std::function<const Format&(const WeightSource&)>;

// The axes of one value along which ranks have a part of it, ascending; none: each has the whole.
using CutAxes = std::vector<size_t>;

// What one rank has of a value.
struct LocalValue {
  Shape shape;
  Part part;  // cut() where it is not the whole

  bool empty() const;
  // Its columns in a row of the whole [t, *]. None where they are not one run.
  std::optional<ColumnRun> columns() const;
};

// The columns that each rank gives to a row of which they have these parts, ascending, all of the row together. None where the parts do
// not lie so.
std::optional<std::vector<ColumnRun>> SideBySide(std::span<const LocalValue> locals);

class Cuts {
 public:
  // graph must outlive it. Throws Refused where the plan seeds an axis that is never cut.
  Cuts(const Graph& graph, const Plan& plan, const FormatOf& format_of);

  size_t places() const { return shares_.size(); }
  // Whether ranks do different parts of this node.
  bool divides(size_t node) const;
  // How the parts of the node's output become one; none where each is complete in itself.
  std::optional<PartialKind> partial(size_t node) const;
  // Of such a node: what each rank gives, and of a sum what it does of it.
  const PartialTerm& term(size_t node) const { return sums_[node].term; }
  SumPart sum_part(size_t node, size_t place) const;
  // Whether the rank has anything to do in this node.
  bool takes_part(size_t node, size_t place) const;

  // The axes along which the node needs an operand cut, and leaves its output.
  CutAxes operand_axes(size_t node, size_t operand) const;
  CutAxes output_axes(size_t node) const;
  // A rank's part of a value that is cut along `axes`, of an operand in the form that the node needs, and of a state.
  LocalValue Local(ValueId value, const CutAxes& axes, size_t place) const;
  LocalValue LocalOperand(size_t node, size_t operand, size_t place) const;
  LocalValue LocalState(ValueId state, size_t place) const;

 private:
  // How a class is cut.
  struct Deal {
    bool active = false;    // seeded, and nothing has shown that it cannot be cut
    size_t preference = 0;  // the place of its name among the seeds
    ClassId group =
        0;  // the class that it is dealt with: its own, or that of the KV heads to which its query heads belong
    int64_t unit = 1;
    AxisCut cut;
  };
  struct Sum {
    PartialTerm term;
    char factor = 0;
  };

  const Deal& deal(ClassId id) const { return deals_[static_cast<size_t>(id)]; }
  Shape ShapeOf(size_t node, size_t operand) const;
  void Seed();
  void FindPairs();
  void ChooseFactors(size_t node);
  bool Reducible(size_t node, const BoundFactor& factor) const;
  SumLeaves LeavesOf(size_t node, char letter) const;
  // The factors of a node's sum, and of them the axes that are cut.
  std::vector<const BoundFactor*> Summed(size_t node) const;
  void FindUnits();
  void NarrowUnits(size_t node);
  // Each gives up classes that turn out not to be cut, and says whether there were any.
  bool KeepStatesTogether();
  bool DealClasses();
  bool DealGroup(ClassId group, const std::vector<ClassId>& members);
  bool FindSums();
  bool CheckMoves();
  bool GiveUpInnermost(const CutAxes& axes, const std::vector<ClassId>& classes);
  bool GiveUp(ClassId id);
  template <typename ClassOf>
  LocalValue LocalOf(const Shape& shape, const CutAxes& axes, size_t place, ClassOf class_of) const;

  const Graph& graph_;
  const Plan& plan_;
  const AxisClasses classes_;
  std::vector<double> shares_;
  size_t sharing_ = 0;  // ranks with a share
  std::map<ValueId, const Format*> formats_;
  std::vector<size_t> producer_;        // node of each value; none: the number of nodes
  std::vector<Deal> deals_;             // by class
  std::vector<std::vector<bool>> cut_;  // of each node and factor
  std::vector<Sum> sums_;               // of each node
};

}  // namespace lockstep
