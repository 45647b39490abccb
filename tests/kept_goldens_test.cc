// Every architecture against logits that are kept here (data/goldens), on weights that are a function of their names: the part of
// goldens_test.cc that any clone can run. data/make_goldens.py says what the files hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"
#include "kept_checkpoint.h"
#include "model_run.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

// Of the distributions that two runs predict, at the median position: one expert chosen otherwise is not the format's loss.
double MedianDivergence(std::span<const float> expected, std::span<const float> found,
                        size_t vocab) {
  std::vector<double> divergences;
  const auto logarithms = [&](std::span<const float> logits) {
    const double most = *std::ranges::max_element(logits);
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - most);
    std::vector<double> values;
    for (float logit : logits) values.push_back(logit - most - std::log(sum));
    return values;
  };
  for (size_t at = 0; at < expected.size(); at += vocab) {
    const auto p = logarithms(expected.subspan(at, vocab)),
               q = logarithms(found.subspan(at, vocab));
    double divergence = 0;
    for (size_t i = 0; i < vocab; ++i) divergence += std::exp(p[i]) * (p[i] - q[i]);
    divergences.push_back(divergence);
  }
  std::ranges::nth_element(divergences, divergences.begin() + std::ssize(divergences) / 2);
  return divergences[divergences.size() / 2];
}

class KeptGolden : public testing::TestWithParam<GoldenRow> {
 protected:
  void SetUp() override {
    WriteKeptModel(GetParam(), folder_ / "model.gguf");
    reference_.emplace(Safetensors::Open(KeptFolder(GetParam()) + "/reference.safetensors"));
    tokens_ = ReadTensor<int32_t>(*reference_, "tokens");
  }

  // Against reference rows, whose last is the last there is; and the same bits in smaller batches and on ranks.
  void Expect(std::string_view tensor, const Runner& run) const {
    const auto expected = ReadTensor<float>(*reference_, std::string(tensor));
    const auto logits = run({tokens_}, {.threads = 2})[0].logits;
    EXPECT_LT(RelativeDifference(
                  ReferenceRowsOf(logits, expected.size() / std::size(kReferenceRows)), expected),
              GetParam().tolerance);
    EXPECT_EQ(run({tokens_}, {.micro_batch = 7})[0].logits, logits);
    EXPECT_EQ(RankDependence(run, tokens_, "F32", 4), "");
  }

  TempFolder folder_;
  std::optional<Safetensors> reference_;
  std::vector<int32_t> tokens_;
};

TEST_P(KeptGolden, GivesTheReferenceLogitsForEveryShapeOfRun) {
  ModelRun model(folder_ / "model.gguf");
  Expect("logits", [&](const auto& sequences, const RunOptions& options) {
    return model.Run(sequences, options);
  });
  ASSERT_EQ(reference_->Find("mtp.logits") != nullptr, GetParam().next_token);
  if (!GetParam().next_token) return;
  Expect("mtp.logits", [&](const auto& sequences, const RunOptions& options) {
    return model.RunNextToken(sequences, options);
  });
}

// Weights of the checkpoints are bf16, which f16 holds too, but for the smallest. Of formats of one kind each bit less doubles the error of
// weights; models of random weights differ in what becomes of it.
TEST_P(KeptGolden, LosesMoreWithFewerBits) {
  constexpr double kOfSmallest = 1e-9;
  ModelRun whole(folder_ / "model.gguf");
  const auto expected = whole.Run({tokens_}, {.threads = 2})[0].logits;
  // Of a format; 0 where none of the rows are whole blocks.
  const auto loss = [&](std::string_view format) {
    const std::string path = folder_ / fmt::format("{}.gguf", format);
    if (WriteInFormat(whole.file(), *FindFormat(format), path, "ffn_gate_inp") == 0) return 0.0;
    ModelRun model(path);
    return MedianDivergence(expected, model.Run({tokens_}, {.threads = 2})[0].logits,
                            static_cast<size_t>(whole.vocab()));
  };
  EXPECT_LT(loss("BF16"), kOfSmallest);
  EXPECT_LT(loss("F16"), kOfSmallest);
  const double eight = loss("Q8_0"), five = loss("Q5_1"), four = loss("Q4_0");
  EXPECT_LT(kOfSmallest, eight);
  EXPECT_LT(eight, five);
  EXPECT_LT(eight, four / 2);
  EXPECT_LT(five, four);
  // What eight bits throw off tells nothing finer.
  constexpr double kThrownOff = 0.05;
  EXPECT_TRUE(eight > kThrownOff || loss("Q6_K") <= loss("Q4_K"));
}

INSTANTIATE_TEST_SUITE_P(Architectures, KeptGolden, testing::ValuesIn(KeptRows()),
                         [](const auto& info) { return TestName(info.param); });

// Drafts aside, every reference checkpoint is kept.
TEST(KeptGoldens, AreThereForEveryArchitecture) {
  size_t drafts = 0;
  for (const GoldenRow& row : kGoldenRows) {
    const bool draft = row.name.ends_with("-assistant") || row.name.ends_with("-dflash");
    drafts += draft;
    EXPECT_TRUE(draft || std::filesystem::exists(KeptFolder(row) + "/weights.json")) << row.name;
  }
  EXPECT_EQ(drafts, 3u);
}

}  // namespace
}  // namespace lockstep::test
