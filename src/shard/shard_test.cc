#include "shard/shard.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

std::string MessageOf(auto run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// "0..4 4..8"
std::string Runs(const AxisCut& cut) {
  std::string text;
  for (const AxisCut::Run& run : cut.runs)
    text += fmt::format("{}{}..{}", text.empty() ? "" : " ", run.begin, run.end);
  return text;
}

TEST(CutAxis, DealsWholeUnitsByShares) {
  const struct {
    int64_t size, unit;
    std::vector<double> shares;
    std::string_view runs;
  } cases[] = {
      {8, 1, {1, 1}, "0..4 4..8"},
      {9, 1, {1, 1}, "0..5 5..9"},
      {8, 1, {3, 1}, "0..6 6..8"},
      {96, 32, {1, 1}, "0..64 64..96"},
      {100, 32, {1, 1, 1, 1}, "0..32 32..64 64..96 96..100"},
      {64, 64, {1, 1}, "0..64 64..64"},
      {8, 1, {0, 1, 0, 1}, "0..0 0..4 4..4 4..8"},
      {2, 1, {1, 1, 1, 1}, "0..1 1..1 1..2 2..2"},
      {7, 1, {1e-6, 1e6}, "0..0 0..7"},
      {0, 1, {1, 1}, "0..0 0..0"},
      // Sums of shares round: the last still ends at the end.
      {10,
       1,
       {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1},
       "0..1 1..2 2..3 3..4 4..5 5..6 6..7 7..8 8..9 9..10"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(Runs(CutAxis(c.size, c.unit, c.shares)), c.runs) << c.size << " by " << c.unit;
}

TEST(CutHeads, CutsQueryHeadsOnlyWhereRanksShareAKvHead) {
  const struct {
    int64_t g, g_unit, r, r_unit;
    std::vector<double> shares;
    std::string_view kv, query;
  } cases[] = {
      {4, 1, 2, 1, {1, 1}, "0..2 2..4", "0..2 0..2"},
      {2, 1, 4, 1, {1, 1, 1, 1}, "0..1 0..1 1..2 1..2", "0..2 2..4 0..2 2..4"},
      {1, 1, 8, 1, {3, 1}, "0..1 0..1", "0..6 6..8"},
      {1, 1, 8, 4, {1, 1}, "0..1 0..1", "0..4 4..8"},
      {2, 1, 4, 1, {1, 0, 1, 1}, "0..1 0..0 1..2 1..2", "0..4 0..0 0..2 2..4"},
      // Heads that only two together fill a block: whole ones are dealt, though some ranks get none.
      {4, 2, 3, 1, {1, 1, 1}, "0..2 2..2 2..4", "0..3 0..3 0..3"},
  };
  for (const auto& c : cases) {
    const HeadCut cut = CutHeads(c.g, c.g_unit, c.r, c.r_unit, c.shares);
    EXPECT_EQ(Runs(cut.g), c.kv);
    EXPECT_EQ(Runs(cut.r), c.query);
  }
}

TEST(CutHeads, GivesEveryQueryHeadToOneRank) {
  for (int64_t g = 1; g <= 5; ++g) {
    for (int64_t r = 1; r <= 5; ++r) {
      for (const std::vector<double>& shares :
           {std::vector<double>{1, 1}, {1, 3}, {7, 1, 2}, {1, 1, 1, 1, 1, 1, 1}, {0, 2, 0, 1, 1}}) {
        const HeadCut cut = CutHeads(g, 1, r, 1, shares);
        std::vector<int> owners(static_cast<size_t>(g * r));
        for (size_t rank = 0; rank < shares.size(); ++rank) {
          for (int64_t i = cut.g.runs[rank].begin; i < cut.g.runs[rank].end; ++i) {
            for (int64_t j = cut.r.runs[rank].begin; j < cut.r.runs[rank].end; ++j)
              ++owners[static_cast<size_t>(i * r + j)];
          }
        }
        EXPECT_EQ(std::ranges::count(owners, 1), g * r)
            << g << " by " << r << " over " << shares.size();
      }
    }
  }
}

TEST(MakePlan, RefusesWhatIsNoPlan) {
  const struct {
    SplitMode mode;
    int32_t ranks;
    std::vector<double> proportions;
    std::string_view message;
  } cases[] = {
      {SplitMode::kTensor, 0, {}, "plan: ranks: expected 1 to 1024, found 0"},
      {SplitMode::kTensor, 1025, {}, "plan: ranks: expected 1 to 1024, found 1025"},
      {SplitMode::kNone, 2, {}, "plan: mode none: expected 1 rank, found 2"},
      {SplitMode::kTensor, 2, {1}, "plan: proportions: expected 2, one for each rank, found 1"},
      {SplitMode::kTensor,
       2,
       {1, -1},
       "plan: proportions: expected numbers from 0 to 1000000, found -1"},
      {SplitMode::kLayer,
       2,
       {1, std::nan("")},
       "plan: proportions: expected numbers from 0 to 1000000, found nan"},
      {SplitMode::kLayer, 2, {0, 0}, "plan: proportions: expected one above 0, found only 0"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(MessageOf([&] { MakePlan(c.mode, c.ranks, c.proportions); }), c.message);
  }
}

const Format& AsF32(const WeightSource&) { return *FindFormat("F32"); }

constexpr Axis K{'k', 64}, F{'f', 256}, G{'g', 4}, R{'r', 2}, D{'d', 16, 16}, V{'v', 300};

// Layers of attention and feed-forward, one behind the other or side by side on one norm.
Graph Decoder(bool parallel, int layers = 2) {
  GraphBuilder b("test");
  auto norm = [&](ValueId x, std::string_view name) {
    return b.Apply(name, MakeRmsNorm({}),
                   {x, b.Weight({fmt::format("{}.{}", b.layer(), name)}, {K})});
  };
  auto linear = [&](std::string_view name, ValueId x, const Shape& shape, int64_t unit) {
    return b.Apply(name, MakeLinear(unit),
                   {x, b.Weight({fmt::format("{}.{}.w", b.layer(), name)}, shape)});
  };
  ValueId x = b.Apply("embed", MakeEmbed(1), {b.tokens(), b.Weight({"embed.w"}, {V, K})});
  for (int i = 0; i < layers; ++i) {
    b.SetLayer(i);
    const ValueId n = norm(x, "norm");
    const ValueId q = linear("q", n, {G, R, D, K}, 0), k = linear("k", n, {G, D, K}, 0),
                  v = linear("v", n, {G, D, K}, 0);
    const ValueId cache = b.State("kv", G.size, D.size, D.size);
    b.Apply("append", MakeKvAppend(), {k, v, cache, cache + 1});
    const ValueId heads = b.Apply("heads", MakeAttention({}), {q, cache, cache + 1});
    const ValueId attn = linear("attn", heads, {K, G, R, D}, D.size);
    if (!parallel) x = b.Apply("x1", MakeAdd(), {x, attn});
    const ValueId m = parallel ? n : norm(x, "ff_norm");
    const ValueId h = b.Apply("h", MakeActivateGated({}),
                              {linear("gate", m, {F, K}, 0), linear("up", m, {F, K}, 0)});
    const ValueId ff = linear("ff", h, {K, F}, 1);
    x = b.Apply("x2", MakeAdd(), {x, parallel ? b.Apply("both", MakeAdd(), {attn, ff}) : ff});
    b.MarkHidden(x);
  }
  b.SetLayer(-1);
  x = norm(x, "final");
  return b.Finish(x, b.Apply("logits", MakeLinear(0), {x, b.Weight({"head"}, {V, K})}));
}

Plan Tensor(int32_t ranks, const std::vector<double>& shares = {}) {
  return MakePlan(SplitMode::kTensor, ranks, shares);
}

TEST(Shard, FindsTwoReductionsALayerAndOneGatherOfLogits) {
  const ShardedGraph sharded = Shard(Decoder(false), Tensor(2), AsF32);
  EXPECT_EQ(sharded.collectives_per_layer(), 2);
  std::string names;
  for (const Collective& c : sharded.collectives) names += c.name + " ";
  EXPECT_EQ(names,
            "blk.0.attn.reduce blk.0.ff.reduce blk.1.attn.reduce blk.1.ff.reduce logits.gather ");
}

TEST(Shard, ReducesSumsThatMeetInOneCollective) {
  const ShardedGraph sharded = Shard(Decoder(true), Tensor(3), AsF32);
  EXPECT_EQ(sharded.collectives_per_layer(), 1);
  EXPECT_EQ(sharded.collectives[0].name, "blk.0.attn.reduce");
  EXPECT_EQ(sharded.collectives[0].terms, 2);
}

TEST(Shard, CountsWhatRanksGiveAndReceive) {
  const ShardedGraph sharded = Shard(Decoder(false), Tensor(2, {3, 1}), AsF32);
  const Collective& attention = sharded.collectives[0];
  // Three heads of four are two subtrees, the fourth is one.
  EXPECT_EQ(attention.numbers, (std::vector<int64_t>{2 * 64, 64}));
  EXPECT_EQ(attention.most_received(), 2 * 64 * 4);
  EXPECT_EQ(sharded.collectives.back().numbers, (std::vector<int64_t>{225, 75}));
}

TEST(Shard, LeavesOneRankTheWholeGraph) {
  const Graph whole = Decoder(false);
  const ShardedGraph sharded = Shard(whole, Tensor(1), AsF32);
  ASSERT_EQ(sharded.ranks.size(), 1u);
  EXPECT_EQ(sharded.ranks[0].Print(), whole.Print());
  EXPECT_TRUE(sharded.collectives.empty());
}

TEST(Shard, GivesARankWithoutAShareNoWeightOfALayer) {
  const ShardedGraph sharded = Shard(Decoder(false), Tensor(2, {1, 0}), AsF32);
  const Graph& idle = sharded.ranks[1];
  EXPECT_TRUE(idle.states.empty());
  for (const Node& node : idle.nodes) {
    for (ValueId id : node.inputs) {
      const Value& value = idle.value(id);
      const bool matrix =
          value.kind == Value::Kind::kWeight && value.shape.rank() > 1 && value.name != "embed.w";
      EXPECT_FALSE(matrix) << value.name;
    }
  }
}

TEST(Shard, NamesThePartOfEveryValueThatARankHas) {
  const Graph whole = Decoder(false);
  const ShardedGraph sharded = Shard(whole, Tensor(4, {1, 1, 1, 1}), AsF32);
  for (size_t rank = 0; rank < 4; ++rank) {
    const Graph& graph = sharded.ranks[rank];
    for (size_t i = 0; i < whole.values.size(); ++i) {
      if (whole.values[i].name != "0.q.w" && whole.values[i].name != "blk.0.kv.k") continue;
      const Value& value = graph.values[i];
      const size_t g = value.kind == Value::Kind::kState ? 1 : 0;
      EXPECT_EQ(value.shape[g].size, 1);
      EXPECT_EQ(value.part.begin[g], static_cast<int64_t>(rank));
      EXPECT_EQ(value.part.whole, whole.values[i].shape);
    }
    EXPECT_EQ(graph.states[0].kv_heads, 1);
  }
}

TEST(Shard, HandsTheStreamFromStageToStage) {
  const ShardedGraph sharded =
      Shard(Decoder(false, 4), MakePlan(SplitMode::kLayer, 2, {3, 1}), AsF32);
  ASSERT_EQ(sharded.collectives.size(), 1u);
  EXPECT_EQ(sharded.collectives[0].kind, Collective::Kind::kSend);
  EXPECT_EQ(sharded.collectives[0].name, "blk.2.x2.send");
  EXPECT_EQ(sharded.ranks[0].states.size(), 3u);
  EXPECT_EQ(sharded.ranks[1].states.size(), 1u);
  EXPECT_EQ(sharded.ranks[0].logits, kNoValue);
  EXPECT_NE(sharded.ranks[1].logits, kNoValue);
}

TEST(Shard, GathersHeadsWhoseSumCannotBeCut) {
  // All heads together have 128 columns, half a block of that format.
  const auto format_of = [](const WeightSource& source) -> const Format& {
    return *FindFormat(source.tensor.find("attn") != std::string::npos ? "Q4_K" : "F32");
  };
  const ShardedGraph sharded = Shard(Decoder(false), Tensor(2), format_of);
  EXPECT_EQ(sharded.collectives_per_layer(), 2);
  EXPECT_EQ(sharded.collectives[0].name, "blk.0.heads.gather");
  EXPECT_EQ(sharded.collectives[1].name, "blk.0.ff.reduce");
}

TEST(Shard, LeavesWholeWhatIsOneUnit) {
  const auto format_of = [](const WeightSource& source) -> const Format& {
    return *FindFormat(source.tensor.find("ff") != std::string::npos ? "Q4_K" : "F32");
  };
  const ShardedGraph sharded = Shard(Decoder(false), Tensor(2), format_of);
  // The 256 columns of f are one block, so that rows of gate and up are cut, and what they make is gathered.
  EXPECT_EQ(sharded.collectives[1].name, "blk.0.h.gather");
}

TEST(Shard, RefusesToCutTokens) {
  Plan plan = Tensor(2);
  plan.seeds = "ft";
  EXPECT_EQ(MessageOf([&] { Shard(Decoder(false), plan, AsF32); }),
            "test: plan: axis 't': expected one of weights or states that may be cut");
}

TEST(Shard, PrintsPlacementsAndCollectives) {
  const Graph whole = Decoder(false, 1);
  const std::string text = Shard(whole, Tensor(2), AsF32).Print(whole);
  for (std::string_view part : {"[t=1, g=4, r=2, d=16]  shard(g)", "partial(sum)\n",
                                "\nblk.0.attn.reduce = reduce, 256 bytes a token\n", "replicate",
                                "logits.gather = gather, 600 bytes a token\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

}  // namespace
}  // namespace lockstep
