#include "engine/evaluator.h"

#include <gtest/gtest.h>
#include <tiny_model.h>

#include <cmath>
#include <cstring>
#include <random>

#include "engine/integer_peak.h"
#include "engine/perplexity.h"
#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

constexpr int64_t kTokens = 150;

class EvaluatorTest : public ::testing::Test {
 protected:
  EvaluatorTest() : EvaluatorTest(WindowedOptions()) {}
  explicit EvaluatorTest(const TinyOptions& options) : path_(folder_ / "tiny.gguf") {
    TinyModel(options).Write(path_);
  }

  std::unique_ptr<Model> Open(int64_t micro_batch = 512, bool hidden = false) const {
    LoadOptions options;
    options.path = path_;
    options.micro_batch = micro_batch;
    options.threads = 2;
    options.context = 256;
    options.hidden = hidden;
    return std::make_unique<Model>(options);
  }

  // The logits of rows from `first_wanted` on.
  static std::vector<float> Logits(Evaluator& evaluator, std::span<const int32_t> tokens,
                                   int64_t first_wanted = 0) {
    std::vector<float> all;
    int64_t next = first_wanted;
    evaluator.Run(tokens, first_wanted, [&](const EvaluatedRows& rows) {
      EXPECT_EQ(rows.first, next);
      EXPECT_EQ(std::ssize(rows.logits), rows.rows * evaluator.model().vocab());
      next += rows.rows;
      all.insert(all.end(), rows.logits.begin(), rows.logits.end());
    });
    EXPECT_EQ(next, std::ssize(tokens));
    return all;
  }

  TempFolder folder_;
  std::string path_;
};

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

class EvaluatorBits : public EvaluatorTest, public testing::WithParamInterface<const char*> {
 protected:
  EvaluatorBits() : EvaluatorTest(OptionsFor(GetParam())) {}
};

TEST_P(EvaluatorBits, DoNotDependOnChunks) {
  const std::vector<int32_t> tokens = SomeTokens(kTokens);
  const auto model = Open();
  Evaluator whole(*model);
  const std::vector<float> expected = Logits(whole, tokens);
  EXPECT_EQ(whole.position(), kTokens);
  for (int64_t micro_batch : {1, 7, 64, 149}) {
    const auto chunked_model = Open(micro_batch);
    Evaluator chunked(*chunked_model);
    EXPECT_TRUE(SameBits(Logits(chunked, tokens), expected)) << micro_batch;
  }
}

// The block's cache stands beside the model's, recurrent states among them, on every rank.
TEST(EvaluatorNextToken, GivesTheSameBitsForEveryShapeOfRun) {
  TempFolder folder;
  TinyOptions tiny = HybridOptions();
  tiny.next_token = true;
  TinyModel(tiny).Write(folder / "tiny.gguf");
  const std::vector<int32_t> tokens = SomeTokens(kTokens);
  const auto logits = [&](int ranks, int64_t micro_batch) {
    LoadOptions options;
    options.path = folder / "tiny.gguf";
    options.context = 256;
    options.threads = 2;
    options.ranks = ranks;
    options.micro_batch = micro_batch;
    options.next_token = true;
    Model model(options);
    Evaluator evaluator(model);
    std::vector<float> all;
    evaluator.Run(tokens, 0, [&](const EvaluatedRows& rows) {
      const auto next = std::span(tokens).subspan(static_cast<size_t>(rows.first) + 1);
      evaluator.RunNextToken(rows, next, [&](const EvaluatedRows& block) {
        all.insert(all.end(), block.logits.begin(), block.logits.end());
      });
    });
    EXPECT_EQ(std::ssize(all), (kTokens - 1) * model.vocab());
    return all;
  };
  const std::vector<float> expected = logits(1, 512);
  for (const auto& [ranks, micro_batch] : {std::pair(1, 7), {1, 64}, {2, 512}, {2, 33}}) {
    EXPECT_TRUE(SameBits(logits(ranks, micro_batch), expected)) << ranks << " " << micro_batch;
  }
}

TEST_F(EvaluatorTest, HandsOutTheWantedRowsOnly) {
  const std::vector<int32_t> tokens = SomeTokens(kTokens);
  const auto model = Open(16);
  Evaluator evaluator(*model);
  const std::vector<float> all = Logits(evaluator, tokens);
  for (int64_t first : {int64_t{1}, int64_t{16}, int64_t{100}, kTokens - 1, kTokens}) {
    evaluator.Rewind(0);
    EXPECT_TRUE(SameBits(Logits(evaluator, tokens, first),
                         std::span(all).subspan(static_cast<size_t>(first * model->vocab()))))
        << first;
  }
}

TEST_P(EvaluatorBits, AreThoseOfAFreshRunAfterRewinding) {
  const std::vector<int32_t> tokens = SomeTokens(kTokens);
  const auto model = Open();
  Evaluator evaluator(*model);
  const std::vector<float> all = Logits(evaluator, tokens);
  const auto after = [&](int64_t depth) {
    return std::span(all).subspan(static_cast<size_t>(depth * model->vocab()));
  };
  for (int64_t depth : {0, 1, 63, 64, 65, 140}) {
    evaluator.Rewind(depth);
    const auto rest = std::span(tokens).subspan(static_cast<size_t>(depth));
    EXPECT_TRUE(SameBits(Logits(evaluator, rest), after(depth))) << depth;
  }
  // Other tokens in between leave nothing behind.
  evaluator.Rewind(10);
  evaluator.Run(SomeTokens(100));
  evaluator.Rewind(10);
  EXPECT_TRUE(SameBits(Logits(evaluator, std::span(tokens).subspan(10)), after(10)));
}

// A window, recurrent states of two kinds.
INSTANTIATE_TEST_SUITE_P(Models, EvaluatorBits, testing::Values("gemma2", "lfm2", "qwen35"));

TEST_F(EvaluatorTest, HiddenStatesHaveEveryLayerAndTheWidth) {
  const auto model = Open(512, true);
  Evaluator evaluator(*model);
  const auto layers = std::ssize(model->graph().hidden);
  ASSERT_EQ(layers, 3);
  std::vector<std::vector<float>> hidden;
  evaluator.Run(SomeTokens(5), 0, [&](const EvaluatedRows& rows) {
    ASSERT_EQ(rows.rows, 5);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const auto values = evaluator.Hidden(layer);
      hidden.emplace_back(values.begin(), values.end());
    }
  });
  ASSERT_EQ(std::ssize(hidden), layers);
  for (const auto& values : hidden) EXPECT_EQ(values.size(), 5u * 64);
  EXPECT_NE(hidden[0], hidden[1]);
  EXPECT_NE(hidden[1], hidden[2]);
}

TEST_F(EvaluatorTest, RefusesWhatDoesNotFit) {
  const auto model = Open();
  Evaluator evaluator(*model);
  EXPECT_EQ(MessageOf([&] { evaluator.Run(SomeTokens(257)); }),
            "context: expected at least 257 positions for the tokens given, found 256");
  const int32_t bad[] = {5, 300}, negative[] = {-1};
  EXPECT_EQ(MessageOf([&] { evaluator.Run(bad); }), "token 1: expected an id below 300, found 300");
  EXPECT_EQ(MessageOf([&] { evaluator.Run(negative); }),
            "token 0: expected an id below 300, found -1");
  EXPECT_EQ(evaluator.position(), 0);
  evaluator.Run(SomeTokens(256));
  EXPECT_EQ(MessageOf([&] { evaluator.Run(SomeTokens(1)); }),
            "context: expected at least 257 positions for the tokens given, found 256");
}

TEST_F(EvaluatorTest, NumbersThatAreNotFiniteFailWithStepAndPosition) {
  TinyModel broken((TinyOptions()));
  // Rows of this table are read when their token comes, not before.
  broken.tensor("token_embd.weight").values[7 * 64] = std::nanf("");
  broken.Write(path_);
  const auto model = Open();
  Evaluator evaluator(*model);
  const int32_t tokens[] = {5, 6, 7};
  const std::string message = MessageOf([&] { evaluator.Run(tokens); });
  EXPECT_NE(message.find("found NaN or infinity at position 2"), message.npos) << message;
}

TEST(TokenScore, EqualsASoftMaxInLongDouble) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 6);
  for (size_t size : {1u, 2u, 127u, 128u, 129u, 1000u}) {
    std::vector<float> logits(size), other(size);
    for (float& logit : logits) logit = normal(random);
    for (size_t i = 0; i < size; ++i) other[i] = logits[i] + 0.1f * normal(random);
    auto log_sum = [](std::span<const float> values) {
      long double sum = 0;
      for (float value : values) sum += std::exp(static_cast<long double>(value));
      return std::log(sum);
    };
    long double kl = 0;
    for (size_t i = 0; i < size; ++i) {
      const long double p = logits[i] - log_sum(logits), q = other[i] - log_sum(other);
      kl += std::exp(p) * (p - q);
    }
    for (Isa isa : AvailableIsas()) {
      const auto token = static_cast<int32_t>(size / 2);
      const TokenScore score = ScoreToken(logits, token, isa);
      EXPECT_NEAR(score.logprob, static_cast<double>(logits[size / 2] - log_sum(logits)), 4e-6);
      EXPECT_EQ(score.logprob, ScoreToken(logits, token, Isa::kPortable).logprob);
      EXPECT_EQ(logits[static_cast<size_t>(score.top)], std::ranges::max(logits));
      const TokenDivergence divergence = Diverge(logits, other, token, isa);
      EXPECT_NEAR(divergence.kl, static_cast<double>(kl), 1e-5);
      EXPECT_EQ(Diverge(logits, logits, token, isa).kl, 0);
      EXPECT_TRUE(Diverge(logits, logits, token, isa).same_top);
    }
  }
}

TEST(TokenScore, TheLowestOfEqualLogitsIsTheTop) {
  const float logits[] = {1, 3, 2, 3};
  EXPECT_EQ(GreatestLogit(logits), 1);
}

TEST(TokenScore, HugeDifferencesStayFinite) {
  const float logits[] = {-3e38f, 0, 3e38f};
  EXPECT_EQ(ScoreToken(logits, 2, BestIsa()).logprob, 0);
  EXPECT_TRUE(std::isfinite(ScoreToken(logits, 0, BestIsa()).logprob));
}

class WindowsTest : public EvaluatorTest {
 protected:
  WindowsTest() : tokenizer_(Tokenizer::FromGguf(GgufFile::Open(path_))) {}
  // Tokenizer of a vocabulary that puts BOS, token 1, before texts.
  Tokenizer WithBos() const {
    TinyModel model((TinyOptions()));
    model.keys["tokenizer.ggml.add_bos_token"] = true;
    model.Write(folder_ / "bos.gguf");
    return Tokenizer::FromGguf(GgufFile::Open(folder_ / "bos.gguf"));
  }
  Tokenizer tokenizer_;
};

TEST_F(WindowsTest, FullWindowsStartWithBosAndLeaveNoTokenOfTheTextUnscored) {
  const std::string text = "abcdefghijk";
  const std::vector<int32_t> tokens = tokenizer_.Encode(text);
  const Windows windows = CutWindows(text, tokenizer_, {.length = 4, .mode = WindowMode::kFull});
  ASSERT_EQ(windows.count(), std::ssize(tokens) / 3);
  EXPECT_EQ(windows.scored(), 3);
  for (int64_t w = 0; w < windows.count(); ++w) {
    EXPECT_EQ(windows.window(w)[0], 1);
    for (size_t i = 1; i < 4; ++i) {
      EXPECT_EQ(windows.window(w)[i], tokens[static_cast<size_t>(w) * 3 + i - 1]);
    }
  }
  const Windows bare =
      CutWindows(text, tokenizer_, {.length = 4, .mode = WindowMode::kFull, .bos = false});
  EXPECT_EQ(bare.window(0)[0], tokens[0]);
}

TEST_F(WindowsTest, HalfWindowsScoreTheSecondHalf) {
  const std::string text = "abcdefghijkl";
  const std::vector<int32_t> tokens = tokenizer_.Encode(text);
  for (int64_t length : {3, 4, 5, 8}) {
    const Windows windows = CutWindows(text, tokenizer_, {.length = length});
    EXPECT_EQ(windows.count(), std::ssize(tokens) / length);
    // llama.cpp: rows from length / 2 to length - 2.
    EXPECT_EQ(windows.first_scored, length / 2);
    EXPECT_EQ(windows.scored(), length - 1 - length / 2);
    EXPECT_EQ(windows.window(0)[0], tokens[0]);
  }
}

TEST_F(WindowsTest, BosTakesTheFirstPlaceOfHalfWindowsWhereTheVocabularyWantsIt) {
  const Tokenizer tokenizer = WithBos();
  const std::vector<int32_t> tokens = tokenizer.Encode("abcdefghijkl");
  const Windows windows = CutWindows("abcdefghijkl", tokenizer, {.length = 4});
  for (int64_t w = 0; w < windows.count(); ++w) EXPECT_EQ(windows.window(w)[0], 1);
  EXPECT_EQ(windows.window(0)[1], tokens[0]);
  EXPECT_EQ(windows.window(1)[1], tokens[4]);
}

TEST_F(WindowsTest, StridesOverlapAndScoreTheirEnd) {
  const std::vector<int32_t> tokens = tokenizer_.Encode("abcdefghijkl");
  const Windows windows = CutWindows("abcdefghijkl", tokenizer_, {.length = 6, .stride = 2});
  EXPECT_EQ(windows.scored(), 2);
  EXPECT_EQ(windows.count(), (std::ssize(tokens) - 6) / 2 + 1);
  EXPECT_EQ(windows.window(1)[0], tokens[2]);
}

TEST_F(WindowsTest, RefusesWhatGivesNothingToScore) {
  struct Case {
    WindowOptions options;
    std::string says;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{.length = 2}, "window: expected at least 3 tokens, found 2"},
           {{.length = -1}, "window: expected at least 3 tokens, found -1"},
           {{.length = 1000}, "text: expected at least one window of 1000 tokens, found"},
           {{.length = 4, .stride = 4}, "stride: expected fewer tokens than the window's 4"},
           {{.length = 4, .stride = -1}, "stride: expected fewer tokens than the window's 4"}}) {
    const std::string message = MessageOf([&] { CutWindows("abcdef", tokenizer_, c.options); });
    EXPECT_TRUE(message.starts_with(c.says)) << message;
  }
  EXPECT_EQ(CutWindows("abcdef", tokenizer_, {.length = 4, .max_windows = 0}).count(), 0);
}

TEST(Mean, KnowsItsErrors) {
  Mean mean;
  EXPECT_EQ(mean.error(), 0);
  for (double value : {1.0, 2.0, 3.0, 6.0}) mean.Add(value);
  EXPECT_DOUBLE_EQ(mean.mean(), 3);
  EXPECT_DOUBLE_EQ(mean.rms(), std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(mean.error(), std::sqrt(3.5 / 3));
}

TEST(IntegerPeak, IsAPlausibleRateOnEveryInstructionSet) {
  ThreadTeam team(1);
  for (Isa isa : AvailableIsas()) {
    const double rate = MeasureIntegerPeak(team, isa);
    EXPECT_GT(rate, 1e7) << IsaName(isa);
    EXPECT_LT(rate, 1e14) << IsaName(isa);
  }
}

}  // namespace
}  // namespace lockstep::test
