#include "ops/factor_rule.h"

#include <gtest/gtest.h>

#include "ops/attention.h"
#include "ops/operations.h"

namespace lockstep {
namespace {

constexpr Axis T{'t', 5}, G{'g', 3}, R{'r', 2}, D{'d', 8}, K{'k', 16}, F{'f', 24, 4}, V{'v', 40},
    S{'s', 64};

struct InferCase {
  std::string_view rule;
  std::vector<Shape> operands;
  std::vector<Shape> expected;
};

TEST(FactorRule, GivesTheShapesOfOutputs) {
  const InferCase cases[] = {
      {"tk, fk -> tf", {{T, K}, {F, K}}, {{T, F}}},
      {"t*, +* -> t+", {{T, K}, {F, K}}, {{T, F}}},
      {"t*, +* -> t+", {{T, K}, {G, R, D, K}}, {{T, G, R, D}}},
      {"t*, +* -> t+", {{T, G, R, D}, {K, G, R, D}}, {{T, K}}},
      {"t*, +* -> t+", {{T}, {F}}, {{T, F}}},
      {"*d!, d -> *d", {{T, G, R, D}, {D}}, {{T, G, R, D}}},
      {"*d!, d -> *d", {{D}, {D}}, {{D}}},
      {"*, * -> *", {{T, K}, {T, K}}, {{T, K}}},
      {"* -> *", {{}}, {{}}},
      {"t, vk -> tk", {{T}, {V, K}}, {{T, K}}},
      {"tf -> t", {{T, F}}, {{T}}},
      {"tk -> tk, t", {{T, K}}, {{T, K}, {T}}},
      {kAttentionRule, {{T, G, R, D}, {S, G, D}, {S, G, K}}, {{T, G, R, K}}},
      {kAttentionSinksRule, {{T, G, R, D}, {S, G, D}, {S, G, D}, {G, R}}, {{T, G, R, D}}},
      {kKvAppendRule, {{T, G, D}, {T, G, D}, {S, G, D}, {S, G, D}}, {}},
  };
  for (const InferCase& c : cases) {
    EXPECT_EQ(FactorRule(c.rule).Infer("x", c.operands), c.expected) << c.rule;
  }
}

TEST(FactorRule, KeepsNameAndUnitOfTheAxisThatBoundAFactorFirst) {
  // Letters are the rule's own: the axis bound to k is called f here, and is cut at multiples of 4.
  const std::vector<Shape> out =
      FactorRule("tk, nk -> tkn").Infer("x", std::vector<Shape>{{T, F}, {V, Axis{'k', 24}}});
  EXPECT_EQ(out[0], (Shape{T, F, V}));
}

TEST(FactorRule, TakesAxesOfTheOperationsOwnMaking) {
  const FactorRule::OwnAxes own = {{'c', D}};
  EXPECT_EQ(FactorRule("t -> tc").Infer("x", std::vector<Shape>{{T}}, own),
            std::vector<Shape>({{T, D}}));
}

struct ErrorCase {
  std::string_view rule;
  std::vector<Shape> operands;
  std::string_view message;
};

TEST(FactorRule, NamesWhatDoesNotFit) {
  const ErrorCase cases[] = {
      {"tk, fk -> tf",
       {{T, K}, {F, Axis{'k', 17}}},
       "x: axis k is 16 in operand 0 but 17 in operand 1"},
      {"tk, fk -> tf", {{T, K}}, "x: expected 2 operands, found 1"},
      {"tk, fk -> tf", {{T, K}, {F, K}, {F}}, "x: expected 2 operands, found 3"},
      {"tk -> t", {{T}}, "x: operand 0: expected 2 axes, found [t=5]"},
      {"tk -> t", {{T, G, K}}, "x: operand 0: expected 2 axes, found [t=5, g=3, k=16]"},
      {"*d!, d -> *d", {{}, {D}}, "x: operand 0: expected at least 1 axes, found []"},
      {"*d!, d -> *d", {{T, D}, {K}}, "x: axis d is 8 in operand 0 but 16 in operand 1"},
      {"*, * -> *",
       {{T, K}, {T, F}},
       "x: operand 1: [t=5, f=24] does not match the operands before it"},
      {"*, * -> *", {{T, K}, {T}}, "x: operand 1: expected 2 axes, found [t=5]"},
      {"t*, +* -> t+", {{T, G, D}, {D}}, "x: operand 1: expected at least 2 axes, found [d=8]"},
      {"t*, +* -> t+",
       {{T, K}, {F, D}},
       "x: operand 1: [f=24, d=8] does not match the operands before it"},
      {kKvAppendRule,
       {{T, G, D}, {T, R, D}, {S, G, D}, {S, G, D}},
       "x: axis g is 3 in operand 0 but 2 in operand 1"},
  };
  for (const ErrorCase& c : cases) {
    try {
      FactorRule(c.rule).Infer("x", c.operands);
      ADD_FAILURE() << c.rule << " accepted what gives: " << c.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), c.message);
      EXPECT_EQ(error.kind(), ErrorKind::kRefused);
    }
  }
}

TEST(FactorRule, MarksFactorsThatStayWhole) {
  const FactorRule rule("tgrd!, s!gd! -> tgr");
  std::string whole;
  for (const FactorRule::Term& term : rule.inputs()) {
    for (const auto& factor : term) {
      if (factor.whole) whole += factor.letter;
    }
  }
  EXPECT_EQ(whole, "dsd");
}

struct MalformedCase {
  const char* rule;
  const char* values;
};

TEST(FactorRuleDeathTest, EndsWhereARuleIsMalformed) {
  const MalformedCase cases[] = {
      {"tk, fk", "no arrow"},
      {"", "no arrow"},
      {"tk, fK -> tf", "'K'"},
      {"tk; fk -> tf", "';'"},
      {"t -> t -> t", "'-'"},
      {"!t -> t", "'!' without a factor"},
      {"t,, k -> t", "without factors"},
      {"-> t", "without factors"},
      {"t -> t,", "without factors"},
      {"*+ -> *+", "two runs of unknown length"},
      {"t -> t*", "is in no operand"},
      {"t*, +* -> *+ ,t1", "'1'"},
  };
  for (const MalformedCase& c : cases) EXPECT_DEATH(FactorRule(c.rule), c.values) << c.rule;
}

TEST(FactorRuleDeathTest, EndsWhereAFactorOfTheOutputIsInNoOperand) {
  EXPECT_DEATH(FactorRule("t -> tk").Infer("x", std::vector<Shape>{{T}}),
               "factor k of the output is in no operand");
}

}  // namespace
}  // namespace lockstep
