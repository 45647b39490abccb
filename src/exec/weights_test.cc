#include "exec/weights.h"

#include <gtest/gtest.h>
#include <model_run.h>
#include <tiny_model.h>

#include <limits>

#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

class WeightsTest : public testing::Test {
 protected:
  std::string Path() const { return folder_ / "model.gguf"; }
  // The message of loading a model, "" where it loads.
  std::string Load(const TinyModel& model, int threads = 2) {
    model.Write(Path());
    return MessageOf([&] {
      const ModelRun run(Path());
      ThreadTeam team(threads);
      WeightStore(FindWeights(run.graph(), run.file()), run.file(), team, nullptr);
    });
  }

  TempFolder folder_;
};

TEST_F(WeightsTest, RefusesWeightsThatAreNotFiniteAndSaysWhere) {
  for (float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (int threads : {1, 3}) {
      TinyModel model{TinyOptions{}};
      // The first of several is named, whichever thread finds it.
      model.tensor("blk.1.ffn_up.weight").values[90 * 64 + 1] = poison;
      model.tensor("blk.1.ffn_up.weight").values[37 * 64 + 11] = poison;
      EXPECT_EQ(
          Load(model, threads),
          Printable(Path()) +
              ": blk.1.ffn_up.weight: expected finite weights, found NaN or infinity at row 37, "
              "column 11 or in its block");
    }
  }
  TinyModel model{TinyOptions{}};
  model.tensor("output_norm.weight").values[5] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Load(model),
            Printable(Path()) + ": output_norm.weight: expected finite weights, found inf at 5");
}

TEST_F(WeightsTest, NamesTheRowOfAFusedTensorAsTheFileCountsIt) {
  TinyOptions options = OptionsFor("phi3");
  TinyModel model(options);
  const int64_t q_rows = options.heads * options.head_dim;
  const auto row = static_cast<size_t>(q_rows + 3);
  model.tensor("blk.0.attn_qkv.weight").values[row * 64 + 7] =
      std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(Load(model).find(fmt::format("blk.0.attn_qkv.weight: expected finite weights, found "
                                         "NaN or infinity at row {}, column 7",
                                         row)),
            std::string::npos);
}

TEST_F(WeightsTest, RefusesShapesThatTheGraphDoesNotExpect) {
  TinyModel model{TinyOptions{}};
  model.Resize("blk.0.ffn_down.weight", {95, 64});
  EXPECT_EQ(Load(model),
            Printable(Path()) + ": blk.0.ffn_down.weight: expected [96, 64], found [95, 64]");
  model.Resize("blk.0.ffn_down.weight", {96, 65});
  EXPECT_EQ(Load(model),
            Printable(Path()) + ": blk.0.ffn_down.weight: expected [96, 64], found [96, 65]");
}

TEST_F(WeightsTest, ReportsProgressUpToAllBytes) {
  TinyModel(TinyOptions{}).Write(Path());
  const ModelRun run(Path());
  std::vector<WeightUse> uses = FindWeights(run.graph(), run.file());
  int64_t bytes = 0, last = 0;
  for (const WeightUse& use : uses) bytes += use.bytes();
  ThreadTeam team(1);
  const WeightStore store(uses, run.file(), team, [&](int64_t done, int64_t all) {
    EXPECT_LE(last, done);
    EXPECT_EQ(all, bytes);
    last = done;
  });
  EXPECT_EQ(last, bytes);
  EXPECT_EQ(store.bytes(), bytes);
}

// Read by rows from the file's map and packed for multiplication: one weight in two forms.
TEST_F(WeightsTest, HoldATiedEmbeddingInBothForms) {
  TinyOptions options;
  options.tied = true;
  TinyModel(options).Write(Path());
  const ModelRun run(Path());
  int tables = 0, matrices = 0;
  for (const WeightUse& use : FindWeights(run.graph(), run.file())) {
    if (use.tensor.name != "token_embd.weight") continue;
    tables += use.kind == OperandKind::kTable;
    matrices += use.kind == OperandKind::kMatrix;
    EXPECT_EQ(use.bytes() == 0, use.kind == OperandKind::kTable);
  }
  EXPECT_EQ(tables, 1);
  EXPECT_EQ(matrices, 1);
}

}  // namespace
}  // namespace lockstep::test
