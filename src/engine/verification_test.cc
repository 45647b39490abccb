#include "engine/verification.h"

#include <gtest/gtest.h>
#include <tiny_model.h>

#include <algorithm>
#include <set>

#include "engine/evaluator.h"
#include "engine/sha256.h"
#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

// Two pages and a part of one.
constexpr int64_t kTokens = 150;

class VerificationTest : public ::testing::Test {
 protected:
  Verification Of(const TinyOptions& options) const {
    TinyModel(options).Write(folder_ / "tiny.gguf");
    return {{.path = folder_ / "tiny.gguf"},
            SomeTokens(kTokens),
            ShapesToVerify(AvailableIsas(), false),
            {512, 7}};
  }

  static constexpr auto Open = [](const LoadOptions& load) {
    return std::make_unique<Model>(load);
  };

  TempFolder folder_;
};

class VerificationOf : public VerificationTest, public testing::WithParamInterface<const char*> {};

TEST_P(VerificationOf, FindsTheSameBitsInEveryShape) {
  const Verification verification = Of(OptionsFor(GetParam()));
  std::set<std::string> hashes;
  size_t runs = 0;
  EXPECT_TRUE(Verify(verification, Open, [&](const VerifiedRun& run) {
    EXPECT_FALSE(run.differs_at.has_value());
    hashes.insert(run.hash);
    ++runs;
  }));
  size_t expected = 0;
  const bool mixture = OptionsFor(GetParam()).experts.count > 0;
  for (const OpenedShape& shape : verification.shapes) {
    if (shape.experts == ExpertSplit::kSlices || mixture) expected += shape.once ? 1 : 2 * 3;
  }
  EXPECT_EQ(runs, expected);

  Model model({.path = verification.load.path, .context = 256});
  Evaluator evaluator(model);
  Sha256 sha;
  evaluator.Run(verification.tokens, 0,
                [&](const EvaluatedRows& rows) { sha.Add(std::as_bytes(rows.logits)); });
  EXPECT_EQ(hashes, std::set{sha.Hex()});
}
INSTANTIATE_TEST_SUITE_P(Models, VerificationOf,
                         testing::Values("llama", "gemma3", "qwen3moe", "deepseek2", "qwen35",
                                         "granitehybrid"),
                         [](const auto& info) { return std::string(info.param); });

// The control: one shape of the run is given another model, which only the rows from one token on can notice.
TEST_F(VerificationTest, SaysWhereAShapeDiffers) {
  const Verification verification = Of({});
  constexpr size_t kAt = 130;
  TinyModel other((TinyOptions()));
  auto& embedding = other.tensor("token_embd.weight").values;
  const size_t width = embedding.size() / static_cast<size_t>(TinyOptions().vocab);
  const int32_t token = verification.tokens[kAt];
  ASSERT_EQ(std::ranges::find(verification.tokens, token) - verification.tokens.begin(), kAt);
  embedding[static_cast<size_t>(token) * width] += 1;
  other.Write(folder_ / "other.gguf");

  const auto differs = [](const OpenedShape& shape) { return shape.split == SplitMode::kLayer; };
  EXPECT_FALSE(Verify(
      verification,
      [&](LoadOptions load) {
        if (load.split == SplitMode::kLayer) load.path = folder_ / "other.gguf";
        return Open(load);
      },
      [&](const VerifiedRun& run) {
        EXPECT_EQ(run.differs_at.has_value(), differs(run.opened));
        EXPECT_EQ(run.differs_at.value_or(kAt), kAt);
      }));
}

TEST_F(VerificationTest, LeavesPrefixesToTextsThatHaveWholePages) {
  Verification verification = Of({});
  verification.shapes.resize(1);
  for (const auto& [length, companies] : {std::pair(1, 2), {64, 2}, {65, 3}}) {
    verification.tokens = SomeTokens(kTokens);
    verification.tokens.resize(static_cast<size_t>(length));
    std::set<Company> found;
    EXPECT_TRUE(
        Verify(verification, Open, [&](const VerifiedRun& run) { found.insert(run.company); }));
    EXPECT_EQ(std::ssize(found), companies) << length;
  }
}

TEST_F(VerificationTest, RefusesTokensThatAreNone) {
  Verification verification = Of({});
  verification.tokens[3] = 300;
  EXPECT_THROW(Verify(verification, Open, [](const VerifiedRun&) {}), Error);
}

TEST(ShapesToVerify, HaveEachPlanThreadCountAndInstructionSet) {
  const std::vector<OpenedShape> some = ShapesToVerify(AvailableIsas(), false),
                                 all = ShapesToVerify(AvailableIsas(), true);
  const auto values = [](const std::vector<OpenedShape>& shapes, auto value) {
    std::set<decltype(value(shapes[0]))> found;
    for (const OpenedShape& shape : shapes) found.insert(value(shape));
    return found;
  };
  const auto plan = [](const OpenedShape& shape) {
    return std::tuple(shape.ranks, shape.split, shape.proportions, shape.experts);
  };
  const auto threads = [](const OpenedShape& shape) { return shape.threads / shape.ranks; };
  const auto isa = [](const OpenedShape& shape) { return shape.isa; };
  EXPECT_EQ(values(some, plan), values(all, plan));
  EXPECT_EQ(values(some, threads), values(all, threads));
  EXPECT_EQ(values(some, isa), values(all, isa));
  EXPECT_EQ(all.size(), values(all, plan).size() * 2 * AvailableIsas().size());
  EXPECT_LT(some.size(), all.size());
  EXPECT_EQ(some[0].ranks, 1);
  EXPECT_EQ(some[0].isa, AvailableIsas().back());
}

}  // namespace
}  // namespace lockstep::test
