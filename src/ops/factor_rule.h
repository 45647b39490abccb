// Factor rules: the whole sharding rule of an operation as one line, "tk, fk -> tf".
//
// Each letter is a *factor*: a dimension shared by every operand that carries the letter. `*` and `+` stand for runs of any number of
// factors, the same run wherever they appear. `!` marks a factor that must stay whole on a rank. Letters are local to the
// rule: they bind to whatever axes the operands have.
//
// A factor that the output lacks is summed: where ranks have parts of it, each has a Partial(sum). "-> max: t" says that the
// output is a maximum over such factors, "-> lse: t" that it is a soft-max sum. `~` after an operand: in place of a maximum over all ranks,
// a rank's own will do, because what is done to a rank's numbers with it is undone before ranks meet (a scale that is a power of two).
//
// A rule checks shapes and gives the output's (Infer), and says how the operation may be cut (Bind, shard/shard.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/axis.h"

namespace lockstep {

// How the parts of a value that is complete on no rank become the value.
enum class PartialKind : uint8_t {
  kSum,  // each rank has roots of subtrees of the canonical sum (formats/segment_tree.h)
  kMax,  // the largest of the ranks' numbers
  kLse,  // soft-max sums over cached positions: merged by their maxima, in order of positions
};
// "sum", "max", "lse"
std::string_view PartialName(PartialKind kind);

// What one factor, or one factor of a run, is in the operands of a node.
struct BoundFactor {
  char letter;            // of the rule
  bool whole;             // marked so in any operand
  Axis axis;              // of the first operand that has it
  std::vector<int> in;    // its place in each operand, -1 where it has none
  std::vector<int> out;   // in each output
};

class FactorRule {
 public:
  struct Factor {
    char letter;  // '*' or '+' for a run of factors
    bool whole;
  };
  using Term = std::vector<Factor>;

  // A malformed rule is a bug of the operation that states it.
  explicit FactorRule(std::string_view text);

  const std::vector<Term>& inputs() const { return inputs_; }
  const std::vector<Term>& outputs() const { return outputs_; }
  // What a cut of factors that the output lacks makes of it.
  PartialKind reduction() const { return reduction_; }
  // Whether the operand may be a rank's own part of a maximum.
  bool own_will_do(size_t operand) const { return own_[operand]; }

  // Binds the operands' axes to the factors and returns the output shapes. Throws Refused "WHO: axis f is 14336 in operand 0 but
  // 11008 in operand 2" where sizes disagree, and where an operand has another number of axes.
  // `own`: axes of factors that no operand carries, of the operation's own making.
  using OwnAxes = std::vector<std::pair<char, Axis>>;
  std::vector<Shape> Infer(std::string_view who, std::span<const Shape> operands,
                           const OwnAxes& own = {}) const;
  // The factors in the order in which operands bring them, then those of the operation's own. Throws as Infer does.
  std::vector<BoundFactor> Bind(std::string_view who, std::span<const Shape> operands,
                                const OwnAxes& own = {}) const;

 private:
  std::vector<Term> inputs_, outputs_;
  std::vector<bool> own_;
  PartialKind reduction_ = PartialKind::kSum;
};

}  // namespace lockstep
