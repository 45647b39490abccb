// Factor rules: the whole sharding rule of an operation as one line, "tk, fk -> tf".
//
// Each letter is a *factor*: a dimension shared by every operand that carries the letter. `*` and `+` stand for runs of any number of
// factors, the same run wherever they appear. `!` marks a factor that must stay whole on a rank. Letters are local to the
// rule: they bind to whatever axes the operands have. Today a rule checks shapes and gives the output's; the sharder reads the
// same rule.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/axis.h"

namespace lockstep {

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

  // Binds the operands' axes to the factors and returns the output shapes. Throws Refused "WHO: axis f is 14336 in operand 0 but
  // 11008 in operand 2" where sizes disagree, and where an operand has another number of axes.
  // `own`: axes of factors that no operand carries, of the operation's own making.
  using OwnAxes = std::vector<std::pair<char, Axis>>;
  std::vector<Shape> Infer(std::string_view who, std::span<const Shape> operands,
                           const OwnAxes& own = {}) const;

 private:
  std::vector<Term> inputs_, outputs_;
};

}  // namespace lockstep
