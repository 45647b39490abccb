// Public reports on tensor parallel runs and on caches of prompts (ids: where they were reported), on small models.
#include <gtest/gtest.h>
#include <tiny_model.h>

#include <algorithm>

#include "base/file.h"
#include "engine/engine.h"
#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

class RanksReports : public ::testing::Test {
 protected:
  void Make(const TinyOptions& options) const { TinyModel(options).Write(folder_ / "tiny.gguf"); }

  // shares: of each rank; empty: one rank.
  std::unique_ptr<Engine> Open(const std::vector<double>& shares = {},
                               LoadOptions options = {}) const {
    options.path = folder_ / "tiny.gguf";
    options.ranks = options.threads = std::max<int>(1, static_cast<int>(shares.size()));
    options.proportions = shares;
    if (options.context == 0) options.context = 256;
    return std::make_unique<Engine>(options);
  }

  static std::shared_ptr<Request> Submit(Engine& engine, std::vector<int32_t> prompt,
                                         int64_t most = 5) {
    return engine
        .Submit({.prompt = std::move(prompt),
                 .sampling = {.temp = 0},
                 .max_tokens = most,
                 .ignore_eos = true})
        .value();
  }
  static Summary Finish(Request& request) {
    Event event;
    while (request.Next(&event) != Request::State::kFinished) continue;
    EXPECT_EQ(request.summary().error, "");
    return request.summary();
  }
  static Summary Run(Engine& engine, std::vector<int32_t> prompt, int64_t most = 5) {
    return Finish(*Submit(engine, std::move(prompt), most));
  }

  void ExpectTheSame(const std::vector<std::vector<double>>& splits,
                     LoadOptions options = {}) const {
    const std::string expected = Run(*Open({}, options), SomeTokens(100)).logits_hash;
    for (const auto& shares : splits)
      EXPECT_EQ(Run(*Open(shares, options), SomeTokens(100)).logits_hash, expected)
          << fmt::format("{}", fmt::join(shares, ":"));
  }

  TempFolder folder_;
};

std::vector<double> Even(size_t ranks) { return std::vector<double>(ranks, 1); }

TEST_F(RanksReports, B139OneKvHeadIsSharedByAllRanks) {
  Make(WindowedOptions());
  ExpectTheSame({Even(2), Even(3), Even(4)});
}

TEST_F(RanksReports, B140LaterRequestsOnRecurrentStatesAnswerLikeTheFirst) {
  Make(HybridOptions());
  std::vector<int32_t> shared = SomeTokens(130);
  shared.insert(shared.end(), {9, 8, 7});
  const std::string first = Run(*Open(), SomeTokens(130)).logits_hash,
                    second = Run(*Open(), shared).logits_hash;
  for (size_t ranks : {2, 4}) {
    const auto engine = Open(Even(ranks));
    EXPECT_EQ(Run(*engine, SomeTokens(130)).logits_hash, first);
    const Summary prefixed = Run(*engine, shared);
    EXPECT_EQ(prefixed.cached_tokens, 128);
    EXPECT_EQ(prefixed.logits_hash, second);
    const auto cancelled = Submit(*engine, SomeTokens(60, 41), 150);
    cancelled->Cancel();
    EXPECT_EQ(Finish(*cancelled).reason, FinishReason::kCancelled);
    EXPECT_EQ(Run(*engine, SomeTokens(130)).logits_hash, first);
  }
}

TEST_F(RanksReports, B142UnevenProportionsCutAtUnitsAndMayLeaveNothing) {
  const std::vector<std::vector<double>> splits = {{0.5, 0.3, 0.2}, {1, 0, 0}, {0.99, 0.01}};
  for (int64_t width : {96, 100, 65}) {
    SCOPED_TRACE(width);
    TinyOptions options;
    options.ff_width = width;
    options.vocab = 259 + width;
    Make(options);
    ExpectTheSame(splits);
  }
}

TEST_F(RanksReports, B145RanksWithoutAShareOfAnythingTakePartInExchangesOnly) {
  Make(OptionsFor("qwen3moe"));
  for (const ExpertSplit experts : {ExpertSplit::kSlices, ExpertSplit::kWhole})
    ExpectTheSame({{1, 1, 0, 0}, {0, 0, 1, 1}, {0, 1}}, {.experts = experts});
}

TEST_F(RanksReports, B146MergedGateAndUpAreCutHalfByHalf) {
  TinyOptions options = OptionsFor("phi3");
  ASSERT_TRUE(options.fused);
  options.ff_width = 100;
  Make(options);
  const std::string merged = Run(*Open(Even(3)), SomeTokens(100)).logits_hash;
  EXPECT_EQ(Run(*Open(), SomeTokens(100)).logits_hash, merged);
  ExpectTheSame({{1, 2, 1}, {5, 1, 1}});
}

TEST_F(RanksReports, B148AnyNumberOfRanksWorks) {
  Make({});
  ExpectTheSame({Even(1), Even(2), Even(3), Even(5), Even(6), Even(7)});
}

TEST_F(RanksReports, B149AFullContextEndsOneAnswerAndNotTheRanks) {
  Make({});
  const auto engine = Open(Even(2), {.context = 96});
  const auto alone = Open({}, {.context = 96});
  std::vector<int32_t> talk;
  for (int32_t turn = 0; turn < 20; ++turn) {
    talk.insert(talk.end(), {5 + turn, 6, 7});
    if (std::ssize(talk) >= 96) {
      EXPECT_FALSE(engine->Submit({.prompt = talk}));
      talk = {5 + turn, 6, 7};
    }
    const Summary summary = Run(*engine, talk, 6);
    EXPECT_EQ(summary.reason, FinishReason::kLength);
    EXPECT_EQ(summary.logits_hash, Run(*alone, talk, 6).logits_hash) << turn;
    talk = summary.tokens;
  }
}

// Prompts of markers that no other has, many at once on few slots, behind a cache of earlier ones.
TEST_F(RanksReports, B094CachedPromptsOfOthersReachNoAnswer) {
  Make({});
  const auto prompt = [](int32_t marker) {
    std::vector<int32_t> tokens(70, 5);
    tokens[66] = 100 + marker;
    return tokens;
  };
  std::vector<std::string> cold;
  for (int32_t marker = 0; marker < 40; ++marker)
    cold.push_back(Run(*Open(), prompt(marker)).logits_hash);
  const auto engine = Open(Even(2), {.sequences = 2});
  for (int32_t marker = 0; marker < 20; ++marker) Run(*engine, prompt(marker));
  std::vector<std::shared_ptr<Request>> requests;
  for (int32_t marker = 0; marker < 40; ++marker)
    requests.push_back(Submit(*engine, prompt(marker)));
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(Finish(*requests[i]).logits_hash, cold[i]) << i;
}

TEST_F(RanksReports, B097AndB098StatesOfNothingAndOfNoFileChangeNothing) {
  Make({});
  const auto engine = Open(Even(2));
  engine->SaveState({}, folder_ / "empty");
  EXPECT_TRUE(engine->LoadState(folder_ / "empty").empty());
  const std::string before = Run(*engine, SomeTokens(100)).logits_hash;
  engine->SaveState(SomeTokens(100), folder_ / "state");
  std::string damaged = ReadFile(folder_ / "state", 1 << 28);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  folder_.Put("damaged", damaged);
  for (const char* name : {"damaged", "nope"})
    EXPECT_THROW(engine->LoadState(folder_ / name), Error);
  const Summary after = Run(*engine, SomeTokens(100));
  EXPECT_EQ(after.cached_tokens, 64);
  EXPECT_EQ(after.logits_hash, before);
}

}  // namespace
}  // namespace lockstep::test
