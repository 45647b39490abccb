// The collectives of every architecture: as many, of the kinds and in the places that the theory of its blocks has; and the print of placements.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "exec/weights.h"
#include "gguf/temp_folder.h"
#include "graph/golden_file.h"
#include "kept_checkpoint.h"
#include "models/models.h"
#include "shard/shard.h"
#include "tiny_model.h"

namespace lockstep::test {
namespace {

// Why a layer has the collectives it has. r: a reduction, g: a gather.
struct Theory {
  std::string_view layer;
  std::string_view reason;
};
constexpr Theory kTwoSums = {"rr",
                             "the mixer's output and the feed-forward's are sums over what is cut, "
                             "and the norm between needs the first whole"};
constexpr Theory kOneSum = {"r", "attention and feed-forward run side by side, their sums meet"};
constexpr Theory kWholeNorm = {"ggrr", "a norm over all heads needs all of q, and all of k"};
constexpr Theory kGrouped = {"grr",
                             "output projections of groups of heads need the heads of other ranks"};
constexpr Theory kTiled = {"r",
                           "value heads are tiled over key heads, so that no rank has one run of "
                           "columns: the mixer is whole on every rank"};
constexpr Theory kTiledStreams = {"ggggrg",
                                  "each of two mixers on streams gathers their norm and their "
                                  "gated mean, and the last the streams; the mixer is whole"};
constexpr Theory kStreams = {"ggrggrg",
                             "each of two mixers on streams gathers their norm and their gated "
                             "mean, and the last the streams; both outputs are sums"};

struct Row {
  std::string_view architecture;
  std::vector<Theory> layers;      // one: all are alike
  std::string_view outside = "g";  // of no layer: logits are gathered
};

// Architectures whose layers are not of two sums.
const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {"cohere2", {kOneSum}},
      {"cohere2moe", {kOneSum}},
      {"deepseek4", {kGrouped}},
      {"minimax-m2", {kWholeNorm}},
      {"olmo2", {kWholeNorm}},
      {"qwen35", {kTiled, kTwoSums}},
      {"qwen35moe", {kTiled, kTwoSums}},
      {"qwen4exp", {kTiledStreams, kStreams}, "ggg"},
  };
  return rows;
}

Row RowOf(std::string_view architecture) {
  const auto row = std::ranges::find(Rows(), architecture, &Row::architecture);
  return row == Rows().end() ? Row{architecture, {kTwoSums}} : *row;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Architecture& row : Architectures()) names.emplace_back(row.name);
  return names;
}

class CollectivesOf : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    TinyModel(OptionsFor(GetParam())).Write(folder_ / "tiny.gguf");
    file_.emplace(GgufFile::Open(folder_ / "tiny.gguf"));
    graph_ = BuildGraph(ModelSource(*file_, ModelOptions{}));
  }
  ShardedGraph Cut(SplitMode mode, int32_t ranks,
                   ExpertSplit experts = ExpertSplit::kSlices) const {
    return Shard(
        graph_, MakePlan(mode, ranks, {}, experts),
        [&](const WeightSource& source) -> const Format& { return WeightFormat(*file_, source); });
  }
  // Kinds in order; those of no layer under -1.
  static std::map<int32_t, std::string> Kinds(const ShardedGraph& sharded) {
    std::map<int32_t, std::string> kinds;
    for (const Collective& collective : sharded.collectives)
      kinds[collective.layer] += CollectiveKindName(collective.kind)[0];
    return kinds;
  }

  TempFolder folder_;
  std::optional<GgufFile> file_;
  Graph graph_;
};

TEST_P(CollectivesOf, AreThoseOfItsBlocks) {
  const Row row = RowOf(GetParam());
  const auto layers = static_cast<int32_t>(graph_.hidden.size()) - 1;
  std::map<int32_t, std::string> kinds = Kinds(Cut(SplitMode::kTensor, 2));
  EXPECT_EQ(kinds[-1], row.outside);
  for (int32_t layer = 0; layer < layers; ++layer) {
    const Theory& theory = row.layers[static_cast<size_t>(layer) % row.layers.size()];
    EXPECT_EQ(kinds[layer], theory.layer) << "layer " << layer << ": " << theory.reason;
  }
}

// The scores of experts are cut with them, and who chooses and weighs them needs all.
TEST_P(CollectivesOf, GatherScoresWhereExpertsAreWhole) {
  std::map<int32_t, std::string> slices = Kinds(Cut(SplitMode::kTensor, 2)),
                                 whole = Kinds(Cut(SplitMode::kTensor, 2, ExpertSplit::kWhole));
  std::set<ValueId> scores;
  for (const Node& node : graph_.nodes) {
    if (node.op->name() != "top_experts" && node.op->name() != "expert_weights") continue;
    const ValueId scored = node.inputs[0];
    if (scores.insert(scored).second) slices[node.layer] += 'g';
  }
  for (auto* kinds : {&slices, &whole}) {
    for (auto& [layer, text] : *kinds) std::ranges::sort(text);
  }
  EXPECT_EQ(whole, slices);
}

TEST_P(CollectivesOf, OfStagesAreSends) {
  const ShardedGraph sharded = Cut(SplitMode::kLayer, 2);
  const bool one_stage = sharded.node_stages.front() == sharded.node_stages.back();
  EXPECT_EQ(sharded.collectives.empty(), one_stage) << "layers that share a cache stay together";
  for (const Collective& collective : sharded.collectives) {
    EXPECT_EQ(CollectiveKindName(collective.kind), "send") << collective.name;
    EXPECT_EQ(collective.stage(sharded.plan.mesh), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CollectivesOf, testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Its feed-forward has a dense part and a mixture side by side, each with a norm behind it: two sums that are needed whole at the same time, in
// one exchange.
TEST(Collectives, OfADensePartBesideAMixtureAreOneForBoth) {
  TempFolder folder;
  const auto row = std::ranges::find(kGoldenRows, "gemma4-moe", &GoldenRow::name);
  WriteKeptModel(*row, folder / "model.gguf");
  const GgufFile file = GgufFile::Open(folder / "model.gguf");
  const Graph graph = BuildGraph(ModelSource(file, ModelOptions{}));
  const ShardedGraph sharded = Shard(
      graph, MakePlan(SplitMode::kTensor, 2, {}),
      [&](const WeightSource& source) -> const Format& { return WeightFormat(file, source); });
  std::map<int32_t, std::vector<int64_t>> terms;
  for (const Collective& collective : sharded.collectives)
    terms[collective.layer].push_back(collective.terms);
  ASSERT_GT(terms.size(), 1u);
  for (const auto& [layer, counts] : terms)
    EXPECT_EQ(counts, layer < 0 ? std::vector<int64_t>{1} : std::vector<int64_t>({1, 2})) << layer;
}

// One of each kind of layer: attention, experts, latent attention, recurrent. Rewritten by LOCKSTEP_WRITE_GOLDENS=1.
class PlacementsOf : public CollectivesOf {};

TEST_P(PlacementsOf, ArePrinted) {
  const std::string path =
      fmt::format("{}/tests/data/placements/{}.txt", LOCKSTEP_SOURCE_DIR, GetParam());
  ExpectGolden(path, Cut(SplitMode::kTensor, 2).Print(graph_) + "\nin stages\n" +
                         Cut(SplitMode::kLayer, 2).Print(graph_));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PlacementsOf,
                         testing::Values("llama", "qwen3moe", "deepseek2", "qwen3next"));

}  // namespace
}  // namespace lockstep::test
