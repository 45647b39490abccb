#include "engine/planning.h"

#include <gtest/gtest.h>
#include <tiny_model.h>

#include <algorithm>

#include "engine/evaluator.h"
#include "engine/exchange_latency.h"
#include "gguf/temp_folder.h"
#include "models/models.h"

namespace lockstep::test {
namespace {

LoadOptions OptionsOf(const std::string& path, const std::vector<double>& proportions) {
  LoadOptions options{.path = path, .context = 256};
  options.ranks = static_cast<int>(proportions.size());
  options.threads = options.ranks;
  options.proportions = proportions;
  options.hidden = true;  // some collectives serve the residual stream alone
  return options;
}

// What is planned is what is run: bytes of weights and caches, and in each collective what a rank receives.
TEST(PlannedRun, IsWhatARunHolds) {
  TempFolder folder;
  for (const Architecture& architecture : Architectures()) {
    SCOPED_TRACE(architecture.name);
    TinyModel(OptionsFor(architecture.name)).Write(folder / "tiny.gguf");
    for (const std::vector<double>& proportions : {std::vector<double>{1, 1}, {2, 1, 1}}) {
      const LoadOptions options = OptionsOf(folder / "tiny.gguf", proportions);
      const PlannedModel planned(options);
      const PlannedRun run =
          planned.Cut(MakePlan(options.split, options.ranks, options.proportions));
      Model model(options);
      int64_t weights = 0, page = 0;
      double token_bytes = 0;
      for (const RankHoldings& rank : run.ranks) {
        weights += rank.weights;
        page += rank.page;
        token_bytes += rank.load.token_bytes;
      }
      EXPECT_EQ(weights, model.weight_bytes());
      EXPECT_EQ(page, model.kv_bytes_per_position() * kPageTokens);
      EXPECT_NEAR(token_bytes, static_cast<double>(model.bytes_per_token()), run.ranks.size());

      Evaluator evaluator(model);
      const std::vector<int32_t> token = {5};
      evaluator.Run(token, 0, [](const EvaluatedRows&) {});
      const Traffic traffic = TokenTraffic(run.sharded);
      int64_t most = 0;
      for (int i = 0; i < options.ranks; ++i) {
        EXPECT_EQ(model.ranks().exchanges(i).exchanges, traffic.reduces + traffic.gathers);
        int64_t received = 0;
        for (const Collective& collective : run.sharded.collectives)
          received += collective.received(static_cast<size_t>(i));
        EXPECT_EQ(model.ranks().exchanges(i).bytes, received);
        most = std::max(most, received);
      }
      EXPECT_EQ(traffic.bytes, most);
    }
  }
}

TEST(PlannedRun, SharesTheWorkByTheProportions) {
  TempFolder folder;
  TinyOptions tiny;
  tiny.ff_width = 1024;
  TinyModel(tiny).Write(folder / "tiny.gguf");
  const PlannedModel model({.path = folder / "tiny.gguf"});
  const PlannedRun run = model.Cut(MakePlan(SplitMode::kTensor, 3, {3, 1, 0}));
  EXPECT_GT(run.ranks[0].load.token_bytes, 2 * run.ranks[1].load.token_bytes);
  EXPECT_EQ(run.ranks[2].load.token_bytes, 0);
  const PlannedRun whole = model.Cut(MakePlan(SplitMode::kNone, 1, {}));
  EXPECT_DOUBLE_EQ(run.ranks[0].load.token_ops + run.ranks[1].load.token_ops,
                   whole.ranks[0].load.token_ops);
}

TEST(PlannedRun, CountsTheExpertsOfATokenWhicheverWayTheyAreDealt) {
  TempFolder folder;
  TinyOptions tiny = OptionsFor("qwen3moe");
  tiny.experts.count = 8;
  TinyModel(tiny).Write(folder / "tiny.gguf");
  const PlannedModel model({.path = folder / "tiny.gguf"});
  const PlannedRun one = model.Cut(MakePlan(SplitMode::kNone, 1, {})),
                   slices = model.Cut(MakePlan(SplitMode::kTensor, 2, {})),
                   whole = model.Cut(MakePlan(SplitMode::kTensor, 2, {}, ExpertSplit::kWhole));
  const auto ops = [](const PlannedRun& run) {
    double all = 0;
    for (const RankLoad& load : run.loads()) all += load.token_ops;
    return all;
  };
  EXPECT_DOUBLE_EQ(ops(whole), ops(one));
  // Ranks with slices find the scores of all experts alike: layers, operations, sizes.
  EXPECT_DOUBLE_EQ(ops(slices), ops(one) + 2.0 * 2 * 64 * 8);
  EXPECT_EQ(slices.ranks[0].load.most_bytes, 0);
  // Two of eight experts, four on each rank: both are on one rank in 12 of 28 draws, so that it has 40 of 28 on average, where a mean is 1.
  const double experts =
      2.0 * 3 * 2 * 64 * 32 * 2;  // layers, matrices, operations, sizes, of two experts
  EXPECT_DOUBLE_EQ(whole.ranks[0].load.most_ops, experts / 2 * (40.0 / 28 - 1));
}

TEST(ExchangeLatency, IsMeasured) {
  const double seconds = MeasureExchangeLatency();
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 1);
}

TEST(ExchangeLatency, OfABarrierIsMeasured) {
  ThreadTeam one(1), two(2);
  const double alone = MeasureBarrier(one), met = MeasureBarrier(two);
  EXPECT_LT(alone, 1e-6);
  EXPECT_GT(met, 0);
  EXPECT_LT(met, 1);
}

}  // namespace
}  // namespace lockstep::test
