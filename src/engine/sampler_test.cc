#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "engine/sampling_kernels.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

SamplingParams Order(std::string_view order, int64_t seed = 7) {
  SamplingParams p;
  p.seed = seed;
  p.samplers = ParseSamplerOrder(order).value();
  return p;
}

Sampler Make(const SamplingParams& params, size_t vocab) {
  return Sampler::Create(params, static_cast<int64_t>(vocab)).value();
}

TokenDraw DrawOnce(const Sampler& sampler, const std::vector<float>& logits, int64_t position = 0,
                   std::span<const int32_t> history = {}, std::span<const uint64_t> mask = {}) {
  SamplerState state = sampler.InitialState();
  return sampler.Sample({logits, history, position, mask}, state).value();
}

std::string ErrorOf(const Sampler& sampler, std::span<const float> logits,
                    std::span<const uint64_t> mask = {}) {
  SamplerState state = sampler.InitialState(), before = state;
  auto draw = sampler.Sample({logits, {}, 0, mask}, state);
  EXPECT_EQ(std::memcmp(&state, &before, sizeof(state)), 0);
  if (draw.ok()) return "";
  EXPECT_EQ(draw.error().kind(), ErrorKind::kFailed);
  return draw.error().what();
}

TEST(Sampler, B103EqualRequestsGiveEqualAnswers) {
  const size_t kVocab = 300;
  SamplingParams params;
  params.seed = 7;
  auto answer = [&] {
    Sampler sampler = Make(params, kVocab);
    SamplerState state = sampler.InitialState();
    std::vector<int32_t> history = {1, 2, 3};
    for (int i = 0; i < 50; ++i) {
      std::vector<float> logits = RandomLogits(kVocab, static_cast<uint32_t>(history.back()));
      int64_t position = static_cast<int64_t>(history.size());
      history.push_back(sampler.Sample({logits, history, position, {}}, state).value().token);
    }
    return history;
  };
  auto first = answer();
  DrawOnce(Make(Order("temperature", 99), 5), {1, 2, 3, 4, 5});
  EXPECT_EQ(answer(), first);
  std::vector<int32_t> elsewhere;
  std::thread([&] { elsewhere = answer(); }).join();
  EXPECT_EQ(elsewhere, first);
}

TEST(Sampler, B116EveryOrderWorksAndZeroTemperatureIsGreedyInAll) {
  std::vector<float> logits = RandomLogits(500, 1);
  int32_t best =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::mt19937 random(2);
  std::vector<std::string> orders = {"min_p;temperature", "", "xtc;xtc;xtc",
                                     "temperature;temperature"};
  while (orders.size() < 204) {
    std::string order;
    for (size_t n = random() % 15; n > 0; --n) {
      order += std::string(SamplerName(static_cast<SamplerKind>(random() % kSamplerKinds))) + ";";
    }
    orders.push_back(order);
  }
  for (const std::string& order : orders) {
    SamplingParams params = Order(order);
    params.typ_p = 0.3f;  // alone, these two drop the most probable token
    params.xtc_probability = 1;
    int32_t token = DrawOnce(Make(params, 500), logits).token;
    EXPECT_TRUE(token >= 0 && token < 500) << order;
    for (float temp : {0.0f, -0.0f, -1.0f}) {
      for (int32_t mirostat : {0, 1, 2}) {
        params.temp = temp;
        params.mirostat = mirostat;
        EXPECT_EQ(DrawOnce(Make(params, 500), logits).token, best) << order;
      }
    }
  }
}

TEST(Sampler, B118AChainWithoutAPickerDraws) {
  Sampler sampler = Make(Order("top_k;top_p"), 400);
  std::vector<float> logits = RandomLogits(400, 3);
  SamplerState state = sampler.InitialState();
  auto distribution = sampler.Distribution({logits, {}, 0, {}}, state).value();
  ASSERT_LE(distribution.size(), 40u);
  std::map<int32_t, int> seen;
  for (int64_t i = 0; i < 200; ++i) ++seen[DrawOnce(sampler, logits, i).token];
  EXPECT_GT(seen.size(), 1u);
  for (auto [token, count] : seen) {
    EXPECT_TRUE(std::any_of(distribution.begin(), distribution.end(),
                            [token = token](const TokenLogProb& t) { return t.token == token; }));
  }
}

TEST(Sampler, B119BiasIsClampedSummedAndChecked) {
  SamplingParams params = Order("temperature");
  params.temp = 0;
  auto chosen = [&](std::vector<LogitBias> biases, std::vector<float> logits) {
    params.logit_bias = std::move(biases);
    return DrawOnce(Make(params, logits.size()), logits).token;
  };
  EXPECT_EQ(chosen({{1, 1e9f}}, {0, -99, 0}), 1);
  EXPECT_EQ(chosen({{1, 1e9f}}, {0, -101, 0}), 0);
  EXPECT_EQ(chosen({{1, 1e9f}, {1, 1e9f}}, {0, -101, 0}), 1);
  EXPECT_EQ(chosen({{1, -1e9f}}, {0, 101, 0}), 1);
  EXPECT_EQ(chosen({{1, -kInf}, {1, kInf}}, {0, 1e30f, 0}), 0);
  for (int64_t token : {int64_t{-1}, int64_t{3}, int64_t{1} << 31}) {
    params.logit_bias = {{token, 1}};
    auto sampler = Sampler::Create(params, 3);
    ASSERT_FALSE(sampler.ok());
    EXPECT_NE(std::string(sampler.error().what()).find(std::to_string(token)), std::string::npos);
  }
  params.logit_bias.assign(1000000, {0, 1});
  EXPECT_FALSE(Sampler::Create(params, 3).ok());
}

TEST(Sampler, TiesGoToTheLowerId) {
  std::vector<float> logits(1000, 2.0f);
  SamplingParams greedy = Order("");
  greedy.temp = 0;
  greedy.n_probs = 5;
  TokenDraw draw = DrawOnce(Make(greedy, 1000), logits);
  EXPECT_EQ(draw.token, 0);
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(draw.top[static_cast<size_t>(i)].token, i);
  EXPECT_NEAR(draw.logprob, -std::log(1000.0), 4e-6);
  Sampler top_k = Make(Order("top_k"), 1000);
  for (int64_t i = 0; i < 100; ++i) EXPECT_LT(DrawOnce(top_k, logits, i).token, 40);
}

TEST(Sampler, BadLogitsAreErrorsThatNameTheToken) {
  Sampler sampler = Make(Order("top_k;temperature"), 300);
  for (size_t bad : {size_t{0}, size_t{127}, size_t{128}, size_t{299}}) {
    std::vector<float> logits(300, 1.0f);
    logits[bad] = kNan;
    EXPECT_EQ(
        ErrorOf(sampler, logits),
        fmt::format("sampling: logit of token {}: expected a number or -inf, found nan", bad));
    logits[bad] = kInf;
    EXPECT_NE(ErrorOf(sampler, logits).find("found inf"), std::string::npos);
    logits[bad] = -kInf;
    EXPECT_EQ(ErrorOf(sampler, logits), "");
  }
  EXPECT_EQ(ErrorOf(sampler, std::vector<float>(300, -kInf)), "sampling: every token is forbidden");
  EXPECT_EQ(ErrorOf(sampler, std::vector<float>(299, 0.0f)),
            "sampling: logits: expected 300, found 299");
  EXPECT_EQ(ErrorOf(sampler, {}), "sampling: logits: expected 300, found 0");
  EXPECT_EQ(ErrorOf(sampler, std::vector<float>(300, 1.0f)), "");
}

TEST(Sampler, MaskForbidsTokens) {
  std::vector<float> logits = RandomLogits(130, 4);
  for (std::string_view order : {"", "top_k;temperature", "temperature", "typ_p;top_p"}) {
    for (float temp : {0.0f, 1.0f}) {
      SamplingParams params = Order(order);
      params.temp = temp;
      Sampler sampler = Make(params, 130);
      for (size_t allowed : {size_t{0}, size_t{63}, size_t{64}, size_t{129}}) {
        std::vector<uint64_t> mask(3, 0);
        mask[allowed / 64] = uint64_t{1} << (allowed % 64);
        EXPECT_EQ(DrawOnce(sampler, logits, 0, {}, mask).token, static_cast<int32_t>(allowed));
      }
      EXPECT_EQ(ErrorOf(sampler, logits, std::vector<uint64_t>(3, 0)),
                "sampling: every token is forbidden");
      EXPECT_EQ(ErrorOf(sampler, logits, std::vector<uint64_t>(2, 1)),
                "sampling: mask: expected 3 words, found 2");
      // Bits past the vocabulary mean nothing.
      EXPECT_EQ(ErrorOf(sampler, logits, std::vector<uint64_t>{0, 0, ~uint64_t{3}}),
                "sampling: every token is forbidden");
    }
  }
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const char* const kOrders[] = {"temperature", "top_k;temperature", "min_p;temperature", "top_p",
                                 "xtc",         "adaptive_p"};
  for (size_t vocab : {size_t{30}, size_t{1000}}) {
    std::vector<float> logits = RandomLogits(vocab, 5);
    for (const char* order : kOrders) {
      SamplingParams params = Order(order, 11);
      params.adaptive_target = 0.3f;
      Sampler sampler = Make(params, vocab);
      const SamplerState start = sampler.InitialState();
      std::map<int32_t, int> counts;
      constexpr int kDraws = 20000;
      for (int64_t i = 0; i < kDraws; ++i) {
        SamplerState state = start;
        ++counts[sampler.Sample({logits, {}, i, {}}, state).value().token];
      }
      double chi2 = 0, rest_expected = 0, rest_found = kDraws;
      int bins = 0;
      auto distribution = sampler.Distribution({logits, {}, 0, {}}, start).value();
      for (const TokenLogProb& t : distribution) {
        double expected = kDraws * std::exp(t.logprob);
        if (expected < 10) {
          rest_expected += expected;
          continue;
        }
        chi2 += (counts[t.token] - expected) * (counts[t.token] - expected) / expected;
        rest_found -= counts[t.token];
        ++bins;
      }
      if (rest_expected >= 10) {
        chi2 += (rest_found - rest_expected) * (rest_found - rest_expected) / rest_expected;
        ++bins;
      }
      // Wilson and Hilferty's approximation of the 0.01 % point.
      double n = std::max(bins - 1, 1), c = 2 / (9 * n);
      EXPECT_LT(chi2, n * std::pow(1 - c + 3.719 * std::sqrt(c), 3)) << order << " " << vocab;
    }
  }
}

TEST(Sampler, ACopiedStateRestoresTheSequence) {
  for (std::string_view order : {"adaptive_p", "temperature"}) {
    for (int32_t mirostat : {0, 1, 2}) {
      SamplingParams params = Order(order);
      params.mirostat = mirostat;
      params.adaptive_target = 0.4f;
      Sampler sampler = Make(params, 200);
      SamplerState state = sampler.InitialState();
      std::vector<float> logits = RandomLogits(200, 6);
      auto run = [&](SamplerState& from) {
        std::vector<int32_t> tokens;
        for (int64_t i = 0; i < 30; ++i)
          tokens.push_back(sampler.Sample({logits, {}, i, {}}, from).value().token);
        return tokens;
      };
      run(state);
      SamplerState saved = state;
      auto first = run(state);
      EXPECT_EQ(run(saved), first);
      EXPECT_EQ(std::memcmp(&saved, &state, sizeof(state)), 0);
    }
  }
}

TEST(Sampler, MirostatSteersTheSurpriseToItsTarget) {
  std::vector<float> logits = RandomLogits(2000, 8);
  for (int32_t mirostat : {1, 2}) {
    SamplingParams params = Order("");
    params.temp = 1;
    params.mirostat = mirostat;
    params.mirostat_tau = 4;
    Sampler sampler = Make(params, 2000);
    SamplerState state = sampler.InitialState();
    double moved = 0;
    constexpr int kTokens = 2000;
    for (int64_t i = 0; i < kTokens; ++i) {
      double mu = state.mirostat_mu;
      ASSERT_TRUE(sampler.Sample({logits, {}, i, {}}, state).ok());
      moved += mu - state.mirostat_mu;  // eta * (surprise - tau)
    }
    EXPECT_NEAR(moved / kTokens / params.mirostat_eta, 0, 0.1) << mirostat;
  }
}

TEST(Sampler, SeedMinusOneIsDrawnOncePerSampler) {
  for (int64_t seed : {int64_t{-1}, int64_t{4294967295}}) {
    EXPECT_NE(Make(Order("", seed), 5).seed(), Make(Order("", seed), 5).seed());
  }
  EXPECT_EQ(Make(Order("", 12), 5).seed(), 12u);
}

TEST(Sampler, InstructionSetsGiveTheSameBits) {
  std::vector<float> logits = RandomLogits(128 * 50, 9);
  logits[5] = -kInf;
  logits[6] = 1e-44f;
  logits[7] = -3e38f;
  float max = *std::max_element(logits.begin(), logits.end());
  auto run = [&](Isa isa) {
    std::vector<float> out(100);
    EXPECT_TRUE(sampling::KernelsFor(isa).block_max(logits.data(), 50, out.data()));
    sampling::KernelsFor(isa).exp_sums(logits.data(), 50, max, out.data() + 50);
    return out;
  };
  auto expected = run(Isa::kPortable);
  for (Isa isa : AvailableIsas()) {
    EXPECT_EQ(std::memcmp(run(isa).data(), expected.data(), 100 * sizeof(float)), 0)
        << IsaName(isa);
    for (float bad : {kNan, kInf, -kNan}) {
      for (size_t at : {size_t{0}, size_t{77}, size_t{128 * 50 - 1}}) {
        std::vector<float> spoilt = logits, out(50);
        spoilt[at] = bad;
        EXPECT_FALSE(sampling::KernelsFor(isa).block_max(spoilt.data(), 50, out.data()))
            << IsaName(isa);
      }
    }
  }
}

TEST(DryBreakers, AreFoundInTokensAndAcrossThem) {
  const std::vector<std::string> kTexts = {"a", "ab", "xab!", "b", "xa", "", "c"};
  auto text = [&](int32_t id) { return kTexts[static_cast<size_t>(id)]; };
  auto tokenize = [](std::string_view rest) {
    return std::vector<int32_t>(rest.size() * 30, rest == "b" ? 3 : 6);
  };
  const std::vector<std::string> kBreakers = {"ab", ""};
  auto found = DryBreakerTokens(kBreakers, 7, text, tokenize);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].size(), 21u);  // "a", then the rest, cut at 20 tokens
  EXPECT_EQ(found[0][0], 0);
  EXPECT_EQ(found[0][1], 3);
  EXPECT_EQ(found[1], std::vector<int32_t>{1});
  EXPECT_EQ(found[2], std::vector<int32_t>{2});
  EXPECT_EQ(found[3][0], 4);
}

TEST(DryBreakers, LimitThePenaltyOfAChain) {
  SamplingParams params = Order("dry");
  params.temp = 0;
  params.dry_multiplier = 10;
  const std::vector<int32_t> kHistory = {1, 2, 3, 4, 1, 2, 3};
  const std::vector<float> kLogits = {0, 0, 0, 0, 5, 4};
  EXPECT_EQ(DrawOnce(Make(params, 6), kLogits, 0, kHistory).token, 5);
  Sampler broken = Sampler::Create(params, 6, {{3}}).value();
  EXPECT_EQ(DrawOnce(broken, kLogits, 0, kHistory).token, 4);
}

}  // namespace
}  // namespace lockstep
