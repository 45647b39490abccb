// A layer of experts from a file to its result, however the file holds its weights.
#include <gtest/gtest.h>
#include <tiny_model.h>

#include <cstring>

#include "exec/executor.h"
#include "exec/program_check.h"
#include "gguf/temp_folder.h"

namespace lockstep::test {
namespace {

constexpr int64_t kExperts = 6, kUsed = 2, kWidth = 64, kInner = 40, kVocab = 300;

enum class Held { kApart, kFusedGateFirst, kFusedUpFirst, kOneEach };

// A tiny model's tensors, a router, and experts held in one of four ways; always the same numbers.
TinyModel ModelOf(Held held) {
  TinyModel model{TinyOptions{}};
  model.tensors.resize(3);
  auto values = [](std::string_view name, int64_t expert) {
    std::vector<float> v(static_cast<size_t>(kInner * kWidth));
    for (size_t i = 0; i < v.size(); ++i) {
      const uint32_t hash = (static_cast<uint32_t>(i) + 977 * static_cast<uint32_t>(expert) +
                             static_cast<uint32_t>(name[0]) * 65537) *
                            2654435761u;
      v[i] = static_cast<float>(hash >> 8) * 0x1p-26f - 0.125f;
    }
    return v;
  };
  auto add = [&](std::string name, std::vector<int64_t> dims, std::vector<float> v) {
    model.tensors.push_back({std::move(name), {dims.begin(), dims.end()}, std::move(v)});
  };
  auto stacked = [&](std::vector<std::string_view> names) {
    std::vector<float> all;
    for (int64_t e = 0; e < kExperts; ++e) {
      for (std::string_view name : names)
        std::ranges::copy(values(name, e), std::back_inserter(all));
    }
    return all;
  };
  std::vector<float> router(static_cast<size_t>(kExperts * kWidth));
  for (size_t i = 0; i < router.size(); ++i)
    router[i] = static_cast<float>(i * 7919 % 31) / 31 - 0.5f;
  add("router", {kWidth, kExperts}, router);
  if (held == Held::kApart) {
    add("gate", {kWidth, kInner, kExperts}, stacked({"gate"}));
    add("up", {kWidth, kInner, kExperts}, stacked({"up"}));
  } else if (held != Held::kOneEach) {
    const bool gate_first = held == Held::kFusedGateFirst;
    add("both", {kWidth, 2 * kInner, kExperts},
        gate_first ? stacked({"gate", "up"}) : stacked({"up", "gate"}));
  }
  if (held != Held::kOneEach) add("down", {kInner, kWidth, kExperts}, stacked({"down"}));
  for (int64_t e = 0; e < kExperts && held == Held::kOneEach; ++e) {
    add(fmt::format("gate.{}", e), {kWidth, kInner}, values("gate", e));
    add(fmt::format("up.{}", e), {kWidth, kInner}, values("up", e));
    add(fmt::format("down.{}", e), {kInner, kWidth}, values("down", e));
  }
  return model;
}

// logits = head(x + experts(x)), twice over one x, so that two such steps follow each other without a need to meet.
Graph GraphOf(Held held) {
  GraphBuilder build("moe");
  const Axis v{'v', kVocab}, k{'k', kWidth}, e{'e', kExperts}, f{'f', kInner};
  const ValueId x = build.Apply("embed", MakeEmbed(1),
                                {build.tokens(), build.Weight({"token_embd.weight"}, {v, k})});
  build.MarkHidden(x);
  ValueId scores = build.Apply("router", MakeLinear(0), {x, build.Weight({"router"}, {e, k})});
  scores = build.Apply("scores", MakeSoftmax(), {scores});
  const ValueId ids = build.Apply("ids", MakeTopExperts({.used = kUsed}, false), {scores});
  const ValueId weights = build.Apply("weights", MakeExpertWeights({}, false), {scores, ids});
  const Shape in{e, f, k};
  const bool each = held == Held::kOneEach;
  auto part = [&](const char* name, int64_t fused_row) {
    if (held == Held::kApart || each)
      return build.Weight({each ? fmt::format("{}.*", name) : name}, in);
    return build.Weight(
        {"both", held == Held::kFusedGateFirst ? fused_row : kInner - fused_row, 2 * kInner}, in);
  };
  const ValueId gate = part("gate", 0), up = part("up", kInner);
  const ValueId down = build.Weight({each ? "down.*" : "down"}, {e, k, f});
  const ValueId one = build.Apply("one", MakeMoeFfn({}), {x, ids, weights, gate, up, down});
  const ValueId two = build.Apply("two", MakeMoeFfn({}), {x, ids, weights, up, gate, down});
  ValueId y = build.Apply("y", MakeAdd(), {one, two});
  y = build.Apply("x1", MakeAdd(), {x, y});
  build.MarkHidden(y);
  const ValueId logits =
      build.Apply("logits", MakeLinear(0), {y, build.Weight({"output.weight"}, {v, k})});
  return build.Finish(y, logits);
}

class ExpertsTest : public testing::Test {
 protected:
  std::string Path() const { return folder_ / "model.gguf"; }
  std::vector<float> Logits(const Graph& graph, int threads, int64_t micro_batch) const {
    const GgufFile file = GgufFile::Open(Path());
    const std::vector<WeightUse> uses = FindWeights(graph, file);
    ThreadTeam team(threads);
    const WeightStore weights(uses, file, team, nullptr);
    const Program program(graph, TakesCodes(uses), {micro_batch, micro_batch, false, true});
    KvPool pool({}, {FindFormat("F32"), FindFormat("F32")}, 1);
    RecurrentPool recurrent({}, 1, 0);
    const auto group = ConnectRanks({.local_ranks = 1, .threads = {team.size()}});
    Executor executor(graph, program, weights, pool, recurrent, team, KernelsFor(BestIsa()),
                      group->local(0));
    std::vector<float> logits;
    for (int32_t begin = 0; begin < 40; begin += static_cast<int32_t>(micro_batch)) {
      Batch batch;
      batch.sequences.resize(1);
      for (int32_t i = begin; i < std::min<int64_t>(40, begin + micro_batch); ++i) {
        batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()));
        batch.tokens.push_back(3 + i * 7);
        batch.places.push_back({0, i});
      }
      executor.Run(batch);
      const auto rows = executor.Result(graph.logits);
      logits.insert(logits.end(), rows.begin(), rows.end());
    }
    return logits;
  }
  // The message of finding the weights, "" where they are found.
  std::string Find(const TinyModel& model, Held held) const {
    model.Write(Path());
    const Graph graph = GraphOf(held);
    return MessageOf([&] { FindWeights(graph, GgufFile::Open(Path())); });
  }

  TempFolder folder_;
};

TEST_F(ExpertsTest, GiveTheSameBitsHoweverTheFileHoldsThemAndHoweverTheyRun) {
  std::vector<float> first;
  for (Held held : {Held::kApart, Held::kFusedGateFirst, Held::kFusedUpFirst, Held::kOneEach}) {
    ModelOf(held).Write(Path());
    for (int threads : {1, 2, 5}) {
      for (int64_t micro_batch : {1, 7, 40}) {
        const std::vector<float> logits = Logits(GraphOf(held), threads, micro_batch);
        if (first.empty()) first = logits;
        ASSERT_EQ(std::memcmp(logits.data(), first.data(), first.size() * sizeof(float)), 0)
            << static_cast<int>(held) << ", " << threads << " threads, " << micro_batch;
      }
    }
  }
}

TEST_F(ExpertsTest, MakeAProgramThatKeepsItsPromises) {
  ModelOf(Held::kApart).Write(Path());
  const Graph graph = GraphOf(Held::kApart);
  for (bool codes : {false, true}) {
    auto takes_codes = [codes](ValueId) { return codes; };
    const Program program(graph, takes_codes, {64, 3, false, true});
    OpenProgram open(graph, program, takes_codes);
    EXPECT_EQ(ProgramCheck(open).Fault(), "");
    // Without the barrier before it, the second step of experts would take memory that the first still reads.
    auto second = std::ranges::find(open.steps, "two", &Step::name);
    ASSERT_TRUE(second->barrier);
    second->barrier = false;
    EXPECT_NE(ProgramCheck(open).Fault(), "");
  }
}

TEST_F(ExpertsTest, AreRefusedWhereTheFileHoldsOthers) {
  const std::string who = Printable(Path());
  TinyModel model = ModelOf(Held::kApart);
  EXPECT_EQ(Find(model, Held::kApart), "");
  model.Resize("up", {kWidth, kInner, kExperts - 1});
  EXPECT_EQ(Find(model, Held::kApart), who + ": up: expected [64, 240], found [64, 200]");
  model = ModelOf(Held::kOneEach);
  model.Remove("down.4");
  EXPECT_EQ(Find(model, Held::kOneEach), who + ": down.4: tensor is missing");
  model = ModelOf(Held::kOneEach);
  model.Resize("gate.5", {kWidth, kInner + 1});
  EXPECT_EQ(Find(model, Held::kOneEach), who + ": gate.5: expected [64, 40], found [64, 41]");
}

TEST_F(ExpertsTest, AreRefusedInTypesThatDoNotGoTogether) {
  for (Held held : {Held::kApart, Held::kOneEach}) {
    ModelOf(held).Write(folder_ / "plain.gguf");
    WriteInFormat(GgufFile::Open(folder_ / "plain.gguf"), *FindFormat(std::string_view("Q8_0")),
                  Path(), held == Held::kApart ? "up" : "gate.3");
    EXPECT_EQ(
        MessageOf([&] { FindWeights(GraphOf(held), GgufFile::Open(Path())); }),
        Printable(Path()) + (held == Held::kApart
                                 ? ": up: expected Q8_0 or a type like it, as gate is, found F32"
                                 : ": gate.3: expected Q8_0 as gate.0 is, found F32"));
  }
}

TEST_F(ExpertsTest, AreRefusedWhereTheyAreNotFinite) {
  TinyModel model = ModelOf(Held::kFusedUpFirst);
  model.tensor("both").values[static_cast<size_t>((3 * 2 * kInner + 17) * kWidth + 5)] =
      std::numeric_limits<float>::infinity();
  model.Write(Path());
  EXPECT_EQ(MessageOf([&] { Logits(GraphOf(Held::kFusedUpFirst), 2, 8); }),
            Printable(Path()) +
                ": both: expected finite weights, found NaN or infinity at row 257, column 5 or in "
                "its block");
}

}  // namespace
}  // namespace lockstep::test
