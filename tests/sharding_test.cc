// The proof of every operation's rule: each operation, cut along each of its axes over 2, 3 and 4 ranks, gives the bits that one rank gives;
// rules that are wrong are caught; graphs put together at random, cut at random, change no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>

#include "gguf/temp_folder.h"
#include "noise.h"
#include "ops/head_linear.h"
#include "rule_cases.h"

namespace lockstep::test {
namespace {

constexpr Axis G{'g', 4}, R{'r', 6}, D{'d', 16}, K{'k', 192}, N{'n', 40}, F{'f', 96},
    V{'v', kBenchVocab};

// y[t] = max over d of |x[t, d]|.
class RowLargest final : public Operation {
 public:
  std::string_view name() const override { return "row_largest"; }
  std::string_view rule() const override { return "td -> max: t"; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      float largest = 0;
      for (int64_t c = 0; c < x.width; ++c) largest = std::max(largest, std::fabs(x.row(t)[c]));
      *y.row(t) = largest;
    }
  }
};

// y = x times the power of two that brings `largest` near 1, or its reciprocal. A rank's own largest will do where it is undone with it.
class ScaleByPower final : public Operation {
 public:
  explicit ScaleByPower(bool back) : back_(back) {}
  std::string_view name() const override { return back_ ? "scale_back" : "scale_down"; }
  std::string_view rule() const override { return "t*, t~ -> t*"; }
  Split split() const override { return Split::kTokens; }
  void Run(const StepContext& step) const override {
    const Rows &x = step.in_rows(0), &y = step.out_rows();
    const WorkRange share = step.Share(step.tokens());
    for (int64_t t = share.begin; t < share.end; ++t) {
      const int power = std::ilogb(*step.in_rows(1).row(t));
      for (int64_t c = 0; c < x.width; ++c)
        y.row(t)[c] = std::ldexp(x.row(t)[c], back_ ? power : -power);
    }
  }

 private:
  bool back_;
};

class RuleOf : public testing::TestWithParam<const Case*> {
 protected:
  ModelRun Model(Graph graph) {
    WriteWeights(graph, folder_ / "weights.gguf");
    return ModelRun(folder_ / "weights.gguf", std::move(graph));
  }
  TempFolder folder_;
};

std::vector<const Case*> AllCases() {
  std::vector<const Case*> cases;
  for (const Case& one : RuleCases()) cases.push_back(&one);
  return cases;
}

TEST_P(RuleOf, GivesTheBitsOfOneRankAlongEveryAxis) {
  Bench bench;
  const ValueId result = GetParam()->state(bench);
  ModelRun model = Model(bench.Finish(result));
  const std::set<char> names = LeafNames(model.graph());
  EXPECT_EQ(RankDifference(model, names), "");
  std::string divides;
  for (char name : names) {
    if (Divides(model, name)) divides += name;
  }
  std::string expected = GetParam()->divides;
  std::ranges::sort(expected);
  EXPECT_EQ(divides, expected) << "axes along which ranks divide it";
}

INSTANTIATE_TEST_SUITE_P(All, RuleOf, testing::ValuesIn(AllCases()), [](const auto& info) {
  return fmt::format("{}_{}", info.param->makes, info.index);
});

TEST(ShardingRules, AreProvedForEveryOperation) {
  // Those that a graph never states: the sharder and the compiler put them in, and their tests are elsewhere (exec/ranks_test.cc).
  std::set<std::string> proved = {"MakeTerm", "MakeOwnPart", "MakeOverRoots", "MakeQuantize",
                                  "MakeSelectRows"};
  for (const Case* one : AllCases()) proved.insert(one->makes);
  const std::regex maker("OperationPtr (Make[A-Za-z]+)\\(");
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("{}/src/ops", LOCKSTEP_SOURCE_DIR))) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator at(text.begin(), text.end(), maker), end; at != end; ++at)
      EXPECT_TRUE(proved.contains((*at)[1])) << (*at)[1] << " has no case in this file";
  }
}

// An operation that states another rule than its own, or leaves of another length.
class Misruled final : public Operation {
 public:
  Misruled(OperationPtr op, std::string rule, int64_t leaf = 0)
      : op_(std::move(op)), rule_(std::move(rule)), leaf_(leaf) {}
  std::string_view name() const override { return op_->name(); }
  std::string_view rule() const override { return rule_; }
  FactorRule::OwnAxes own_axes() const override { return op_->own_axes(); }
  OperandKind operand(size_t i) const override { return op_->operand(i); }
  std::vector<size_t> multiplied_by(size_t i) const override { return op_->multiplied_by(i); }
  SumLeaves sum_leaves(char factor, std::span<const Shape> operands,
                       std::span<const Format* const> formats) const override {
    SumLeaves leaves = op_->sum_leaves(factor, operands, formats);
    if (leaf_ != 0) leaves.length = leaf_;
    return leaves;
  }
  std::shared_ptr<const Operation> part_of_sum(const SumPart& part) const override {
    return op_->part_of_sum(part);
  }
  Split split() const override { return Split::kOwn; }
  size_t scratch_bytes(std::span<const Operand> in, int64_t tokens) const override {
    return op_->scratch_bytes(in, tokens);
  }
  void Run(const StepContext& step) const override {
    StepContext own = step;
    own.split = op_->split() == Split::kEither ? Split::kTokens : op_->split();
    op_->Run(own);
  }

 private:
  OperationPtr op_;
  std::string rule_;
  int64_t leaf_;
};

OperationPtr Misrule(OperationPtr op, std::string rule, int64_t leaf = 0) {
  return std::make_shared<Misruled>(std::move(op), std::move(rule), leaf);
}

const Case kControls[] = {
    {"a soft-max over a part of its row", "d",
     [](Bench& b) { return b.Test(Misrule(MakeSoftmax(), "*d -> *d"), {b.Input({D})}); }},
    {"the best of a part of the experts", "e",
     [](Bench& b) {
       return b.Test(Misrule(MakeTopExperts({.used = 2}, true), "te, e -> te"),
                     {b.Input({{'e', 2}}), b.Weight({{'e', 2}})});
     }},
    {"a whole bias for a part of the row", "f",
     [](Bench& b) {
       return b.Test(Misrule(MakeAddBias(), "t*, f! -> t*"),
                     {b.Input({F}), b.Weight({{'n', F.size}})});
     }},
    {"heads that share a whole row", "g",
     [](Bench& b) {
       return b.Test(Misrule(MakeGroupedLinear(), "t*!, hnk! -> thn"),
                     {b.Input({{'k', 64}}), b.Weight({G, N, D})});
     }},
    {"leaves of another length than the sum has", "k",
     [](Bench& b) {
       return b.Test(Misrule(MakeLinear(1), "t*, +* -> t+", 48), {b.Input({K}), b.Weight({N, K})});
     }},
    {"a rank's own maximum where it is not undone", "f",
     [](Bench& b) {
       const ValueId x = b.Input({F}), largest = b.Apply(std::make_shared<RowLargest>(), {x});
       return b.Test(std::make_shared<ScaleByPower>(false), {x, largest});
     }},
};

class WrongRule : public testing::TestWithParam<const Case*> {};

TEST_P(WrongRule, IsCaught) {
  TempFolder folder;
  Bench bench;
  const ValueId result = GetParam()->state(bench);
  Graph graph = bench.Finish(result);
  WriteWeights(graph, folder / "weights.gguf");
  ModelRun model(folder / "weights.gguf", std::move(graph));
  EXPECT_NE(RankDifference(model, {GetParam()->divides[0]}), "") << GetParam()->makes;
}

std::vector<const Case*> Controls() {
  std::vector<const Case*> cases;
  for (const Case& one : kControls) cases.push_back(&one);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, WrongRule, testing::ValuesIn(Controls()),
                         [](const auto& info) { return fmt::format("Control{}", info.index); });

// Rows scaled by powers of two before a sum and back after it, by a maximum that is each rank's own.
TEST(ShardingRules, LetScalesDifferPerRankWhereTheyAreUndoneOnItsPartials) {
  TempFolder folder;
  Bench bench;
  const ValueId x = bench.Input({K}), largest = bench.Apply(std::make_shared<RowLargest>(), {x});
  const ValueId down = bench.Apply(std::make_shared<ScaleByPower>(false), {x, largest});
  const ValueId sum = bench.Apply(MakeLinear(1), {down, bench.Weight({N, K})});
  const ValueId back = bench.Apply(std::make_shared<ScaleByPower>(true), {sum, largest});
  Graph graph = bench.Finish(bench.Apply(MakeScale(2), {back}));
  WriteWeights(graph, folder / "weights.gguf");
  ModelRun model(folder / "weights.gguf", std::move(graph));
  EXPECT_EQ(RankDifference(model, {'k'}), "");
  // The maximum itself is never exchanged.
  const ShardedGraph sharded =
      Shard(model.graph(), MakePlan(SplitMode::kTensor, 3, {}),
            [](const WeightSource&) -> const Format& { return *FindFormat("F32"); });
  EXPECT_EQ(sharded.collectives.size(), 0u) << "k is not seeded by default";
  Plan plan = MakePlan(SplitMode::kTensor, 3, {});
  plan.seeds = "k";
  const ShardedGraph cut = Shard(
      model.graph(), plan, [](const WeightSource&) -> const Format& { return *FindFormat("F32"); });
  ASSERT_EQ(cut.collectives.size(), 1u);
  EXPECT_EQ(cut.collectives[0].terms, 1);
  EXPECT_EQ(cut.placements[static_cast<size_t>(largest)].partial(), PartialKind::kMax);
  EXPECT_EQ(cut.placements[static_cast<size_t>(back)].partial(), PartialKind::kSum);
}

TEST(ShardingRules, ReduceAMaximumOverACutAxis) {
  TempFolder folder;
  Bench bench;
  const ValueId largest = bench.Apply(std::make_shared<RowLargest>(), {bench.Input({F})});
  const ValueId wide = bench.Apply(MakeMulEach(), {bench.Input({N}), largest});
  Graph graph = bench.Finish(wide);
  WriteWeights(graph, folder / "weights.gguf");
  ModelRun model(folder / "weights.gguf", std::move(graph));
  EXPECT_EQ(RankDifference(model, {'f', 'n'}), "");
}

// Draws for random graphs.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed * 7919 + 1) {}
  int64_t Below(int64_t size) {
    return static_cast<int64_t>(SplitMix(state_ += kSplitMixStep) % static_cast<uint64_t>(size));
  }

 private:
  uint64_t state_;
};

// Ten operations on values of two shapes.
ValueId RandomGraph(Bench& b, Draw& draw) {
  const Axis k{'k', 64};
  std::vector<ValueId> wide = {b.Input({F}), b.Input({F})}, narrow = {b.Input({k}), b.Input({k})},
                       heads = {b.Input({G, R, D})};
  auto any = [&](const std::vector<ValueId>& values) {
    return values[static_cast<size_t>(draw.Below(std::ssize(values)))];
  };
  for (int i = 0; i < 10; ++i) {
    const ValueId x = any(narrow), h = any(wide);
    switch (draw.Below(9)) {
      case 0:
        wide.push_back(b.Apply(MakeLinear(0), {x, b.Weight({F, k})}));
        break;
      case 1:
        narrow.push_back(b.Apply(MakeLinear(8), {h, b.Weight({k, F})}));
        break;
      case 2:
        wide.push_back(b.Apply(MakeActivateGated({}), {h, any(wide)}));
        break;
      case 3:
        narrow.push_back(b.Apply(MakeAdd(), {x, any(narrow)}));
        break;
      case 4:
        narrow.push_back(b.Apply(MakeRmsNorm({}), {x, b.Weight({k})}));
        break;
      case 5:
        narrow.push_back(b.Apply(MakeAddBias(), {x, b.Weight({k})}));
        break;
      case 6:
        narrow.push_back(b.Apply(MakeLinear(16), {any(heads), b.Weight({k, G, R, D})}));
        break;
      case 7:
        heads.push_back(b.Apply(MakeLinear(0), {x, b.Weight({G, R, D, k})}));
        break;
      default:
        heads.push_back(b.Apply(MakeRmsNorm({}), {any(heads), b.Weight({D})}));
        break;
    }
  }
  return b.Apply(MakeLinear(0), {narrow.back(), b.Weight({V, k})});
}

TEST(ShardingRules, ChangeNoBitOfRandomGraphs) {
  constexpr std::string_view kSeeds[] = {"grfv", "f", "k", "fk", "kf", "rd", "vk", "gkf"};
  int64_t collectives = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Draw draw(seed);
    TempFolder folder;
    Bench bench;
    const ValueId result = RandomGraph(bench, draw);
    Graph graph = bench.Finish(result);
    WriteWeights(graph, folder / "weights.gguf");
    ModelRun model(folder / "weights.gguf", std::move(graph));
    const std::vector<float> expected = Results(model, {1}, "f");
    const std::string seeds(kSeeds[draw.Below(std::ssize(kSeeds))]);
    std::vector<double> shares;
    for (int64_t ranks = 2 + draw.Below(3); std::ssize(shares) < ranks;)
      shares.push_back(static_cast<double>(draw.Below(4)));
    shares[0] += 1;
    EXPECT_TRUE(SameBits(Results(model, shares, seeds), expected))
        << "graph " << seed << " along " << seeds;
    Plan plan = MakePlan(SplitMode::kTensor, 2, {});
    plan.seeds = seeds;
    collectives += std::ssize(Shard(model.graph(), plan, [](const WeightSource&) -> const Format& {
                                return *FindFormat("F32");
                              }).collectives);
  }
  EXPECT_GT(collectives, 60);
}

}  // namespace
}  // namespace lockstep::test
