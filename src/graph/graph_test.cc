#include "graph/graph.h"

#include <gtest/gtest.h>
#include <model_run.h>
#include <tiny_model.h>

#include "gguf/temp_folder.h"
#include "graph/golden_file.h"

namespace lockstep::test {
namespace {

constexpr Axis K{'k', 64}, F{'f', 96}, V{'v', 300};

TEST(Graph, PrintsWhatAModelComputes) {
  for (const auto& [name, options] :
       {std::pair("llama", TinyOptions{}), std::pair("gemma2", WindowedOptions())}) {
    TempFolder folder;
    TinyModel(options).Write(folder / "model.gguf");
    const std::string golden =
        fmt::format("{}/src/graph/testdata/{}.txt", LOCKSTEP_SOURCE_DIR, name);
    ExpectGolden(golden, ModelRun(folder / "model.gguf").graph().Print());
  }
}

TEST(GraphBuilder, RefusesOperandsThatDoNotFitAndNamesThem) {
  GraphBuilder build("flint");
  const ValueId x =
      build.Apply("embed", MakeEmbed(1), {build.tokens(), build.Weight({"embedding"}, {V, K})});
  build.SetLayer(3);
  const ValueId weight = build.Weight({"up"}, {F, Axis{'k', 65}});
  EXPECT_EQ(MessageOf([&] {
              build.Apply("up", MakeLinear(0), {x, weight});
            }),
            "flint: blk.3.up: operand 1: [f=96, k=65] does not match the operands before it");
  const ValueId norm = build.Weight({"norm"}, {F});
  EXPECT_EQ(MessageOf([&] {
              build.Apply("norm", MakeRmsNorm({.eps = 1}), {x, norm});
            }),
            "flint: blk.3.norm: axis k is 64 in operand 0 but 96 in operand 1");
}

TEST(GraphBuilder, RefusesSizesThatDoNotFitNumbers) {
  GraphBuilder build("flint");
  const Axis huge{'f', int64_t{1} << 31}, heads{'g', int64_t{1} << 31};
  EXPECT_EQ(MessageOf([&] {
              build.Weight({"w"}, {huge, heads, K});
            }),
            "flint: w: expected at most 2^48 numbers, found [f=2147483648, g=2147483648, k=64]");
}

TEST(GraphBuilder, GivesOneValueForOneWeight) {
  GraphBuilder build("flint");
  const ValueId first = build.Weight({"w"}, {F, K});
  EXPECT_EQ(build.Weight({"w"}, {F, K}), first);
  EXPECT_NE(build.Weight({"w", 96, 192}, {F, K}), first);
  EXPECT_NE(build.Weight({"v"}, {F, K}), first);
}

TEST(GraphBuilder, StatesKeysAndValuesOfALayer) {
  GraphBuilder build("flint");
  build.SetLayer(1);
  const ValueId keys = build.State("kv", 2, 16, 24);
  // As with tokens, the number of positions is none of the graph's.
  EXPECT_EQ(build.shape(keys).ToString(), "[s=1, g=2, d=16]");
  EXPECT_EQ(build.shape(keys + 1).ToString(), "[s=1, g=2, d=24]");
}

}  // namespace
}  // namespace lockstep::test
