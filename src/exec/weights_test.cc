#include "exec/weights.h"

#include <gtest/gtest.h>
#include <model_run.h>
#include <tiny_model.h>

#include <cstring>
#include <limits>

#include "gguf/temp_folder.h"
#include "ops/head_linear.h"

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

// Heads woven in a tensor, as attn_q_b and attn_kv_b of latent attention weave them: [4 heads, 16 rows, 64], of which a weight
// takes 6 rows of each head from row 3 on, as one matrix or, turned round, as one for each head.
struct RunsOfRows {
  Graph graph;
  ValueId weight;

  explicit RunsOfRows(bool transposed) {
    GraphBuilder build("test");
    const Axis k{'k', 64, 64}, r{'r', 4, 1}, d{'d', 6, 6};
    const ValueId x = build.Apply("x", MakeEmbed(1), {build.tokens(), build.Weight({"token_embd.weight"}, {{'v', 300, 1}, k})});
    const WeightSource turned{.tensor = "blk.0.attn_q.weight", .row_begin = 3, .file_rows = 16, .transposed = true};
    const WeightSource plain{"blk.0.attn_q.weight", 3, 64, 6, 16};
    const ValueId heads = build.Apply("heads", MakeLinear(0), {x, build.Weight(plain, {r, d, k})});
    weight = transposed ? build.Weight(turned, {r, k, d}) : build.Weight(plain, {r, d, k});
    const ValueId y = transposed ? build.Apply("y", MakeHeadLinear(), {heads, weight}) : heads;
    graph = build.Finish(y, y);
  }
};

TEST_F(WeightsTest, TakesRunsOfRowsAndTurnsThemRound) {
  TinyModel model{TinyOptions{}};
  model.Write(Path());
  const GgufFile plain = GgufFile::Open(Path());
  const std::string halves = folder_ / "f16.gguf", blocks = folder_ / "q8_0.gguf";
  WriteInFormat(plain, *FindFormat("F16"), halves);
  WriteInFormat(plain, *FindFormat("Q8_0"), blocks);
  for (const std::string& path : {Path(), halves, blocks}) {
    const GgufFile file = GgufFile::Open(path);
    const GgufTensor tensor = file.RequireTensor("blk.0.attn_q.weight");
    const Format& format = *FindFormat(tensor.type->id);
    for (bool transposed : {false, true}) {
      SCOPED_TRACE(fmt::format("{} transposed {}", format.name, transposed));
      const RunsOfRows runs(transposed);
      std::vector<float> values;  // as the weight holds them
      std::vector<float> row(64);
      const int64_t n = transposed ? 64 : 6, width = transposed ? 6 : 64;
      for (int64_t i = 0; i < 4 * n * width; ++i) {
        const int64_t head = i / (n * width), a = i / width % n, b = i % width;
        const int64_t file_row = head * 16 + 3 + (transposed ? b : a);
        format.decode(tensor.data.data() + file_row * format.RowBytes(64), 64 / format.block, row.data());
        values.push_back(row[static_cast<size_t>(transposed ? a : b)]);
      }
      // Numbers that blocks hold are exact in f32 and come back from f16 as they were.
      const Format& held = transposed && format.block > 1 ? *FindFormat("F32") : format;
      std::vector<std::byte> bytes(static_cast<size_t>(4 * n * held.RowBytes(width)));
      held.encode(values.data(), 4 * n * width / held.block, bytes.data());
      for (int threads : {1, 3}) {
        ThreadTeam team(threads);
        const WeightStore store(FindWeights(runs.graph, file), file, team, nullptr);
        const Operand operand = store.Get(runs.weight, transposed ? OperandKind::kExperts : OperandKind::kMatrix);
        const int64_t matrices = transposed ? 4 : 1, rows = 4 * n / matrices;
        for (int64_t i = 0; i < matrices; ++i) {
          const PackedMatrix& found =
              transposed ? std::get<Experts>(operand)[static_cast<size_t>(i)] : *std::get<const PackedMatrix*>(operand);
          ASSERT_EQ(found.format, &held);
          PackedMatrix expected(held, rows, width);
          std::vector<std::byte> packed(static_cast<size_t>(expected.bytes()));
          expected.data = packed.data();
          ASSERT_FALSE(PackPanels(bytes.data() + i * rows * held.RowBytes(width), 0, expected.panels(), expected).has_value());
          EXPECT_EQ(std::memcmp(found.data, packed.data(), packed.size()), 0);
        }
      }
    }
  }
}

TEST_F(WeightsTest, NamesTheRowOfARunAsTheFileCountsIt) {
  TinyModel model{TinyOptions{}};
  model.tensor("blk.0.attn_q.weight").values[(2 * 16 + 3 + 4) * 64 + 9] = std::numeric_limits<float>::infinity();
  model.Write(Path());
  const GgufFile file = GgufFile::Open(Path());
  for (bool transposed : {false, true}) {
    const RunsOfRows runs(transposed);
    ThreadTeam team(2);
    EXPECT_NE(MessageOf([&] { WeightStore(FindWeights(runs.graph, file), file, team, nullptr); })
                  .find("NaN or infinity at row 39, column 9 "),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::test
