// Next-token blocks of every architecture that is a plain decoder: a block behind its layers is a layer as the others are.
#include <gtest/gtest.h>

#include "gguf/temp_folder.h"
#include "model_run.h"
#include "models/models.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

constexpr const char* kArchitectures[] = {"llama",   "deepseek2", "deepseek32", "glm-dsa",
                                          "glm4moe", "qwen3moe",  "qwen3next",  "qwen35",
                                          "gemma3",  "mellum"};

std::vector<int32_t> Prompt(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(3 + i * 37 % 290));
  return tokens;
}

class NextTokenOf : public testing::TestWithParam<const char*> {
 protected:
  static TinyModel Model() {
    TinyOptions options = OptionsFor(GetParam());
    options.next_token = true;
    return TinyModel(options);
  }
  std::string Write(const TinyModel& model) {
    model.Write(folder_ / "model.gguf");
    return folder_ / "model.gguf";
  }
  TempFolder folder_;
};

bool OfBlock(const TinyTensor& tensor) {
  return tensor.name.starts_with(
      fmt::format("blk.{}.", OptionsFor(NextTokenOf::GetParam()).layers));
}

Runner RunnerOf(ModelRun& model) {
  return [&](const auto& sequences, const RunOptions& options) {
    return model.RunNextToken(sequences, options);
  };
}

TEST_P(NextTokenOf, RunsWithTheSameBitsForEveryShape) {
  const std::string plain = Write(Model());
  for (const auto& [weights, kv] : {std::pair("F32", "F32"), std::pair("Q8_0", "F16")}) {
    SCOPED_TRACE(weights);
    const std::string path = folder_ / (std::string(weights) + ".gguf");
    WriteInFormat(GgufFile::Open(plain), *FindFormat(std::string_view(weights)), path);
    ModelRun model(path);
    EXPECT_EQ(ShapeDependence(RunnerOf(model), Prompt(70), kv), "");
  }
}

TEST_P(NextTokenOf, RunsWithTheSameBitsOnEveryNumberOfRanks) {
  ModelRun model(Write(Model()));
  EXPECT_EQ(RankDependence(RunnerOf(model), Prompt(70), "F32"), "");
}

TEST_P(NextTokenOf, UsesEveryTensorOfItsBlockAndTheModelNone) {
  const TinyModel model = Model();
  const std::vector<std::vector<int32_t>> prompt = {Prompt(24)};
  ModelRun reference(Write(model));
  const std::vector<float> expected = reference.RunNextToken(prompt, {})[0].logits,
                           of_model = reference.Run(prompt, {})[0].logits;
  size_t own = 0;
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    if (!OfBlock(model.tensors[i])) continue;
    ++own;
    TinyModel changed = model;
    std::vector<float>& values = changed.tensors[i].values;
    for (size_t j = 0; j < values.size(); ++j) {
      values[j] = values[j] * (1.25f + 0.25f * static_cast<float>(j % 3)) + 0.05f;
    }
    ModelRun run(Write(changed));
    EXPECT_GT(RelativeDifference(run.RunNextToken(prompt, {})[0].logits, expected), 1e-4)
        << model.tensors[i].name;
    EXPECT_TRUE(SameBits(run.Run(prompt, {})[0].logits, of_model)) << model.tensors[i].name;
  }
  EXPECT_GE(own, 10u);
}

TEST_P(NextTokenOf, RefusesAFileWithoutOneOfTheTensorsOfItsHead) {
  const TinyModel model = Model();
  for (const TinyTensor& tensor : model.tensors) {
    if (tensor.name.find("nextn.") == std::string::npos) continue;
    TinyModel changed = model;
    changed.Remove(tensor.name);
    const std::string path = Write(changed);
    EXPECT_EQ(MessageOf([&] {
                ModelRun(path).RunNextToken({{3, 4}}, {});
              }),
              fmt::format("{}: {}: tensor is missing", path, tensor.name));
    EXPECT_EQ(MessageOf([&] { ModelRun(path).Run({{3, 4}}, {}); }), "");
  }
}

// Nothing of a sequence stands before the row of its second token.
TEST_P(NextTokenOf, SeesNoRowBeforeTheFirst) {
  ModelRun model(Write(Model()));
  const RunResult alone = model.RunNextToken({{3, 4}}, {.hidden = true})[0];
  const RunResult longer = model.RunNextToken({{3, 4, 5, 6}}, {.hidden = true})[0];
  ASSERT_EQ(alone.logits.size() * 3, longer.logits.size());
  EXPECT_TRUE(SameBits(alone.logits, std::span(longer.logits).first(alone.logits.size())));
  for (float logit : longer.logits) EXPECT_TRUE(std::isfinite(logit));
}

INSTANTIATE_TEST_SUITE_P(All, NextTokenOf, testing::ValuesIn(kArchitectures), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST(NextToken, IsRefusedWhereThereIsNoneOrNoneThatIsKnown) {
  TempFolder folder;
  const std::string path = folder / "m.gguf";
  TinyModel(OptionsFor("llama")).Write(path);
  EXPECT_EQ(MessageOf([&] {
              ModelRun(path).RunNextToken({{3, 4}}, {});
            }),
            path +
                ": llama.nextn_predict_layers: expected a block that predicts the token after the "
                "next, found none");
  // A residual of several streams.
  TinyModel streams(OptionsFor("deepseek4"));
  streams.key("nextn_predict_layers") = uint32_t{1};
  streams.Write(path);
  EXPECT_EQ(MessageOf([&] {
              ModelRun(path).RunNextToken({{3, 4}}, {});
            }),
            path +
                ": deepseek4.nextn_predict_layers: expected a block as one of this architecture is "
                "known here, found one that is not");
  TinyModel all(OptionsFor("llama"));
  all.key("nextn_predict_layers") = uint32_t{2};
  all.Write(path);
  EXPECT_EQ(MessageOf([&] { ModelRun run(path); }),
            path + ": llama.nextn_predict_layers: expected less than the 2 blocks, found 2");
}

// A file may hold an embedding and a head of the block's own.
TEST(NextToken, UsesAnEmbeddingAndAHeadOfItsOwn) {
  TempFolder folder;
  TinyOptions options = OptionsFor("llama");
  options.next_token = true;
  TinyModel model(options);
  const std::string path = folder / "m.gguf";
  model.Write(path);
  const std::vector<float> shared = ModelRun(path).RunNextToken({Prompt(9)}, {})[0].logits;
  for (const auto& [own, of_model] : {std::pair("embed_tokens", "token_embd.weight"),
                                      std::pair("shared_head_head", "output.weight")}) {
    TinyModel with = model;
    TinyTensor copy = with.tensor(of_model);
    copy.name = fmt::format("blk.2.nextn.{}.weight", own);
    with.tensors.push_back(copy);
    with.Write(path);
    EXPECT_TRUE(SameBits(ModelRun(path).RunNextToken({Prompt(9)}, {})[0].logits, shared)) << own;
    for (float& value : with.tensors.back().values) value = -value;
    with.Write(path);
    EXPECT_GT(RelativeDifference(ModelRun(path).RunNextToken({Prompt(9)}, {})[0].logits, shared),
              0.1)
        << own;
  }
}

}  // namespace
}  // namespace lockstep::test
