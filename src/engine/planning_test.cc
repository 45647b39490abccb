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
      int64_t most = 0;
      for (int i = 0; i < options.ranks; ++i) {
        const Traffic traffic = TokenTraffic(run.sharded);
        EXPECT_EQ(model.ranks().exchanges(i).exchanges, traffic.reduces + traffic.gathers);
        most = std::max(most, model.ranks().exchanges(i).bytes);
      }
      EXPECT_LE(most, TokenTraffic(run.sharded).bytes);
      // The rank that receives the most may be another in each collective.
      EXPECT_GE(most * 2, TokenTraffic(run.sharded).bytes);
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
