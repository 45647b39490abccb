// Graphs that ranks execute, stated here by hand, give the bits of the whole graph on one rank.
#include "exec/ranks.h"

#include <gtest/gtest.h>
#include <tiny_model.h>

#include <atomic>
#include <cstring>
#include <numeric>

#include "gguf/temp_folder.h"
#include "ops/collective.h"

namespace lockstep::test {
namespace {

constexpr int64_t kWidth = 256, kVocab = 300, kInner[] = {1024, 768};
constexpr int64_t kHuge = 7;  // a token whose row overflows

// Two feed-forwards, the second beside or behind the first, and a head.
struct WholeGraph {
  Graph graph;
  struct Part {
    ValueId up_weight, down_weight, up, active, down, sum;
  };
  ValueId embedding, x, norm_weight, norm, head, logits;
  Part parts[2];

  explicit WholeGraph(bool beside) {
    GraphBuilder build("test");
    const Axis v{'v', kVocab}, k{'k', kWidth}, n = k;
    embedding = build.Weight({"embed"}, {v, k});
    x = build.Apply("x", MakeEmbed(1), {build.tokens(), embedding});
    build.MarkHidden(x);
    ValueId stream = x;
    for (int i = 0; i < 2; ++i) {
      build.SetLayer(i);
      Part& p = parts[i];
      const Axis f{'f', kInner[i]};
      p.up_weight = build.Weight({fmt::format("up{}", i)}, {f, k});
      p.down_weight = build.Weight({fmt::format("down{}", i)}, {n, f});
      p.up = build.Apply("up", MakeLinear(0), {beside ? x : stream, p.up_weight});
      p.active = build.Apply("active", MakeActivate(Activation::kSilu), {p.up});
      p.down = build.Apply("down", MakeLinear(32), {p.active, p.down_weight});
      stream = p.sum = build.Apply("sum", MakeAdd(), {stream, p.down});
      build.MarkHidden(stream);
    }
    build.SetLayer(-1);
    norm_weight = build.Weight({"norm"}, {n});
    norm = build.Apply("norm", MakeRmsNorm({}), {stream, norm_weight});
    head = build.Weight({"head"}, {v, k});
    logits = build.Apply("logits", MakeLinear(0), {norm, head});
    graph = build.Finish(norm, logits);
  }
};

// What one rank executes, put together node by node; values keep the whole graph's ids.
class LocalGraph {
 public:
  explicit LocalGraph(const Graph& whole) : whole_(whole), graph_(whole) {
    graph_.nodes.clear();
    graph_.hidden.clear();
    graph_.logits = graph_.final_hidden = kNoValue;
  }

  void Cut(ValueId id, size_t axis, int64_t begin, int64_t end) {
    Value& value = graph_.values[static_cast<size_t>(id)];
    const Shape shape = value.shape;
    value.part.whole = shape;
    value.part.begin[axis] = begin;
    value.shape = {};
    for (size_t i = 0; i < shape.rank(); ++i)
      value.shape.Append({shape[i].name, i == axis ? end - begin : shape[i].size});
  }
  ValueId Add(std::string name, const Shape& shape) {
    Value value;
    value.name = std::move(name);
    value.shape = shape;
    graph_.values.push_back(value);
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }
  void Do(OperationPtr op, std::vector<ValueId> inputs, ValueId output) {
    graph_.nodes.push_back({std::move(op), std::move(inputs), output, -1});
    for (ValueId id : whole_.hidden) {
      if (id == output) graph_.hidden.push_back(id);
    }
    if (output == kNoValue) return;
    if (output == whole_.logits) graph_.logits = output;
    if (output == whole_.final_hidden) graph_.final_hidden = output;
  }
  // The node that makes this value of the whole graph, as it stands there.
  void Keep(ValueId output) {
    for (const Node& node : whole_.nodes) {
      if (node.output == output) return Do(node.op, node.inputs, output);
    }
  }
  const Shape& shape(ValueId id) const { return graph_.value(id).shape; }
  const Node& whole_node(ValueId output) const {
    return *std::ranges::find(whole_.nodes, output, &Node::output);
  }
  Graph Take() { return std::move(graph_); }

 private:
  const Graph& whole_;
  Graph graph_;
};

// What ranks have: leaves of each sum by rank, and rows of the head.
struct TensorCut {
  const char* name;
  std::vector<int64_t> leaves[2];  // ends, of each rank
  std::vector<int64_t> rows;       // ends
};

LeafRange RangeOf(const std::vector<int64_t>& ends, size_t rank) {
  return {rank == 0 ? 0 : ends[rank - 1], ends[rank]};
}

// The part of a feed-forward that one rank computes; gives the terms of its reduction.
PartialTerm StatePart(LocalGraph& local, const WholeGraph& whole, int i, const TensorCut& cut,
                      size_t rank, int64_t length, std::vector<ValueId>& inputs) {
  const WholeGraph::Part& p = whole.parts[i];
  PartialTerm term;
  term.shape = local.shape(p.down);
  term.sum = {kInner[i], length};
  for (size_t r = 0; r < cut.rows.size(); ++r) term.leaves.push_back(RangeOf(cut.leaves[i], r));
  const LeafRange own = term.leaves[rank];
  const int64_t begin = own.first * length, end = std::min(kInner[i], own.last * length);
  if (own.first == own.last) return term;
  local.Cut(p.up_weight, 0, begin, end);
  local.Cut(p.down_weight, 1, begin, end);
  local.Cut(p.up, 1, begin, end);
  local.Cut(p.active, 1, begin, end);
  local.Keep(p.up);
  local.Keep(p.active);
  const ValueId roots =
      local.Add(fmt::format("roots{}", i), {term.shape[0], {'p', term.roots(rank)}, term.shape[1]});
  local.Do(local.whole_node(p.down).op->part_of_sum({'*', term.sum, own}),
           {p.active, p.down_weight}, roots);
  inputs.push_back(roots);
  return term;
}

void StateReduce(LocalGraph& local, const Graph& whole, std::vector<PartialTerm> terms, size_t rank,
                 std::vector<ValueId> inputs, const std::vector<ValueId>& outputs) {
  if (inputs.empty()) inputs = {whole.tokens};
  const Shape shape = terms[0].shape;
  const size_t count = terms.size();
  const auto reduce = std::make_shared<Reduce>(std::move(terms), rank);
  if (count == 1) return local.Do(reduce, inputs, outputs[0]);
  const ValueId all = local.Add("terms", {shape[0], {'p', static_cast<int64_t>(count)}, shape[1]});
  local.Do(reduce, inputs, all);
  for (size_t i = 0; i < count; ++i) local.Do(MakeTerm(static_cast<int64_t>(i)), {all}, outputs[i]);
}

Graph TensorRank(const WholeGraph& whole, const TensorCut& cut, size_t rank, bool beside,
                 const int64_t (&lengths)[2]) {
  LocalGraph local(whole.graph);
  local.Keep(whole.x);
  std::vector<PartialTerm> terms;
  std::vector<ValueId> inputs, outputs;
  for (int i = 0; i < 2; ++i) {
    terms.push_back(StatePart(local, whole, i, cut, rank, lengths[i], inputs));
    outputs.push_back(whole.parts[i].down);
    if (beside && i == 0) continue;
    StateReduce(local, whole.graph, std::move(terms), rank, inputs, outputs);
    if (beside) local.Keep(whole.parts[0].sum);
    local.Keep(whole.parts[i].sum);
    terms.clear();
    inputs.clear();
    outputs.clear();
  }
  local.Keep(whole.norm);
  std::vector<ColumnRun> columns;
  for (size_t r = 0; r < cut.rows.size(); ++r) {
    const LeafRange rows = RangeOf(cut.rows, r);
    columns.push_back({rows.first, rows.last});
  }
  const ColumnRun own = columns[rank];
  ValueId mine = whole.graph.tokens;
  const Shape all = local.shape(whole.logits), part = {all[0], {all[1].name, own.size()}};
  if (own.size() != 0) {
    local.Cut(whole.head, 0, own.begin, own.end);
    mine = local.Add("own logits", part);
    local.Do(MakeLinear(0), {whole.norm, whole.head}, mine);
  }
  local.Do(std::make_shared<Gather>(columns, rank, part, all), {mine}, whole.logits);
  return local.Take();
}

// Stages with runs of the nodes x, layer 0, layer 1, head: ends of each.
Graph PipelineRank(const WholeGraph& whole, const std::vector<int>& ends, int rank) {
  LocalGraph local(whole.graph);
  const ValueId streams[] = {whole.x, whole.parts[0].sum, whole.parts[1].sum};
  const int begin = rank == 0 ? 0 : ends[static_cast<size_t>(rank) - 1];
  const int end = ends[static_cast<size_t>(rank)];
  const bool last = rank + 1 == std::ssize(ends);
  if (begin > 0) {
    const ValueId from = streams[begin - 1];
    local.Do(std::make_shared<Receive>(rank - 1, 0, local.shape(from)), {whole.graph.tokens}, from);
  }
  for (int i = begin; i < end; ++i) {
    if (i == 0) local.Keep(whole.x);
    if (i == 1 || i == 2) {
      const WholeGraph::Part& p = whole.parts[i - 1];
      for (ValueId id : {p.up, p.active, p.down, p.sum}) local.Keep(id);
    }
    if (i == 3) {
      local.Keep(whole.norm);
      local.Keep(whole.logits);
    }
  }
  if (!last) local.Do(std::make_shared<Send>(rank + 1, 0), {streams[end - 1]}, kNoValue);
  Graph graph = local.Take();
  // What a stage was handed, another keeps.
  if (begin > 0) std::erase(graph.hidden, streams[begin - 1]);
  return graph;
}

struct Outcome {
  std::vector<float> logits, first_hidden, final_hidden;
  std::vector<std::string> faults;
  bool operator==(const Outcome&) const = default;
};

class RanksTest : public testing::Test {
 protected:
  RanksTest() {
    TinyModel model{TinyOptions{}};
    model.tensors.clear();
    auto add = [&](const std::string& name, std::vector<uint64_t> dims, float scale) {
      TinyTensor tensor{name, dims, {}};
      uint64_t size = 1;
      for (uint64_t dim : dims) size *= dim;
      for (uint64_t i = 0; i < size; ++i) {
        const uint32_t hash = static_cast<uint32_t>(i + 977 * name.size() + name[0]) * 2654435761u;
        tensor.values.push_back((static_cast<float>(hash >> 8) * 0x1p-23f - 1.0f) * scale);
      }
      model.tensors.push_back(std::move(tensor));
    };
    add("embed", {kWidth, kVocab}, 1);
    std::fill_n(model.tensors[0].values.begin() + kHuge * kWidth, kWidth, 3e38f);
    for (int i = 0; i < 2; ++i) {
      add(fmt::format("up{}", i), {kWidth, static_cast<uint64_t>(kInner[i])}, 0.125f);
      add(fmt::format("down{}", i), {static_cast<uint64_t>(kInner[i]), kWidth}, 0.0625f);
    }
    add("norm", {kWidth}, 1);
    add("head", {kWidth, kVocab}, 0.125f);
    model.Write(folder_ / "F32.gguf");
    const GgufFile plain = GgufFile::Open(folder_ / "F32.gguf");
    for (const char* format : {"Q8_0", "Q4_K"})
      WriteInFormat(plain, *FindFormat(std::string_view(format)), Path(format), "embed");
  }

  std::string Path(std::string_view format) const {
    return folder_ / (std::string(format) + ".gguf");
  }

  Outcome Run(const ShardedGraph& sharded, const WholeGraph& whole, const GgufFile& file,
              int threads, int64_t micro_batch, Isa isa = BestIsa(), bool huge = false) {
    const int ranks = sharded.plan.mesh.ranks();
    const std::vector<int> teams(static_cast<size_t>(ranks), threads);
    const auto group = ConnectRanks({.local_ranks = ranks, .threads = teams});
    RankSet set(sharded, file, 0, ranks, {micro_batch, micro_batch, true, true});
    const Format* f32 = FindFormat(std::string_view("F32"));
    set.Load(*group,
             {.threads = teams,
              .cpus = std::vector<std::vector<int>>(teams.size()),
              .kv = {f32, f32},
              .pages = 1,
              .slots = 1,
              .isa = isa},
             nullptr);
    Outcome outcome;
    auto take = [&](ValueId id, std::vector<float>& to) {
      const std::span<const float> rows = set.Result(id);
      to.insert(to.end(), rows.begin(), rows.end());
    };
    for (int64_t begin = 0; begin < 40; begin += micro_batch) {
      Batch batch;
      batch.sequences.resize(1);
      for (int64_t i = begin; i < std::min<int64_t>(40, begin + micro_batch); ++i) {
        batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()));
        batch.tokens.push_back(static_cast<int32_t>(huge && i % 11 == 3 ? kHuge : 20 + i * 7));
        batch.places.push_back({0, i});
      }
      set.Run(batch);
      take(whole.logits, outcome.logits);
      take(whole.graph.hidden[0], outcome.first_hidden);
      take(whole.graph.final_hidden, outcome.final_hidden);
      for (int64_t row = 0; row < std::ssize(batch.tokens); ++row)
        outcome.faults.push_back(set.Fault(row));
    }
    return outcome;
  }

  static ShardedGraph Whole(const WholeGraph& whole) {
    return {MakePlan(SplitMode::kNone, 1, {}), {whole.graph}, {}, {}};
  }

  static ShardedGraph Tensor(const WholeGraph& whole, const TensorCut& cut, bool beside,
                             const Format& format) {
    int64_t lengths[2];
    for (int i = 0; i < 2; ++i) {
      const Node& node = *std::ranges::find(whole.graph.nodes, whole.parts[i].down, &Node::output);
      const Shape shapes[] = {whole.graph.value(node.inputs[0]).shape,
                              whole.graph.value(node.inputs[1]).shape};
      const Format* formats[] = {nullptr, &format};
      const SumLeaves leaves = node.op->sum_leaves('*', shapes, formats);
      EXPECT_EQ(leaves.count(), cut.leaves[i].back());
      lengths[i] = leaves.length;
    }
    ShardedGraph sharded;
    sharded.plan.mesh.tensor = static_cast<int32_t>(cut.rows.size());
    for (size_t rank = 0; rank < cut.rows.size(); ++rank)
      sharded.ranks.push_back(TensorRank(whole, cut, rank, beside, lengths));
    return sharded;
  }

  TempFolder folder_;
};

// Q4_K has blocks of 256, so its sums have four leaves and three.
std::vector<TensorCut> CutsFor(std::string_view format) {
  if (format == "Q4_K") {
    return {{"halves", {{2, 4}, {1, 3}}, {128, 300}},
            {"a rank with nothing", {{0, 4, 4}, {0, 2, 3}}, {0, 300, 300}},
            {"four", {{1, 2, 3, 4}, {1, 2, 2, 3}}, {17, 100, 100, 300}}};
  }
  return {{"one", {{8}, {8}}, {300}},
          {"halves", {{4, 8}, {4, 8}}, {150, 300}},
          {"uneven", {{3, 8}, {7, 8}}, {32, 300}},
          {"nothing first", {{0, 8}, {0, 8}}, {0, 300}},
          {"nothing last", {{8, 8}, {8, 8}}, {300, 300}},
          {"apart", {{8, 8}, {0, 8}}, {0, 300}},
          {"three", {{1, 7, 8}, {2, 4, 8}}, {1, 2, 300}},
          {"four", {{2, 4, 6, 8}, {1, 3, 4, 8}}, {75, 150, 225, 300}},
          {"every other", {{0, 3, 3, 8}, {0, 0, 5, 8}}, {0, 200, 200, 300}}};
}

TEST_F(RanksTest, OfOneStageGiveTheBitsOfTheWhole) {
  for (const char* format : {"F32", "Q8_0", "Q4_K"}) {
    const GgufFile file = GgufFile::Open(Path(format));
    for (bool beside : {false, true}) {
      const WholeGraph whole(beside);
      const Outcome expected = Run(Whole(whole), whole, file, 1, 40);
      ASSERT_EQ(expected.logits.size(), 40u * kVocab);
      for (const TensorCut& cut : CutsFor(format)) {
        SCOPED_TRACE(fmt::format("{} {} {}", format, beside ? "beside" : "behind", cut.name));
        const ShardedGraph sharded =
            Tensor(whole, cut, beside, *FindFormat(std::string_view(format)));
        for (int64_t micro_batch : {7, 40}) {
          for (int threads : {1, 2})
            ASSERT_TRUE(Run(sharded, whole, file, threads, micro_batch) == expected);
        }
        for (Isa isa : AvailableIsas())
          ASSERT_TRUE(Run(sharded, whole, file, 1, 33, isa) == expected);
      }
    }
  }
}

TEST_F(RanksTest, OfSeveralStagesGiveTheBitsOfTheWhole) {
  const GgufFile file = GgufFile::Open(Path("Q8_0"));
  const WholeGraph whole(false);
  const Outcome expected = Run(Whole(whole), whole, file, 1, 40);
  for (const std::vector<int>& ends :
       {std::vector<int>{4}, {1, 4}, {2, 4}, {3, 4}, {1, 2, 4}, {2, 3, 4}, {1, 2, 3, 4}}) {
    ShardedGraph sharded;
    sharded.plan.mesh.pipeline = static_cast<int32_t>(ends.size());
    for (int rank = 0; rank < std::ssize(ends); ++rank)
      sharded.ranks.push_back(PipelineRank(whole, ends, rank));
    for (int64_t micro_batch : {1, 7, 40}) {
      for (int threads : {1, 2}) {
        ASSERT_TRUE(Run(sharded, whole, file, threads, micro_batch) == expected)
            << ends.size() << " stages, micro-batches of " << micro_batch;
      }
    }
  }
}

TEST_F(RanksTest, NameTheSameStepForARowThatIsNotFinite) {
  for (const char* format : {"Q8_0", "Q4_K"}) {
    const GgufFile file = GgufFile::Open(Path(format));
    const WholeGraph whole(false);
    const Outcome expected = Run(Whole(whole), whole, file, 1, 40, BestIsa(), true);
    for (int64_t row = 0; row < 40; ++row)
      ASSERT_EQ(expected.faults[static_cast<size_t>(row)].empty(), row % 11 != 3) << row;
    for (const TensorCut& cut : CutsFor(format)) {
      const ShardedGraph sharded = Tensor(whole, cut, false, *FindFormat(std::string_view(format)));
      EXPECT_EQ(Run(sharded, whole, file, 2, 40, BestIsa(), true).faults, expected.faults)
          << cut.name;
    }
    ShardedGraph stages;
    stages.plan.mesh.pipeline = 2;
    for (int rank : {0, 1}) stages.ranks.push_back(PipelineRank(whole, {2, 4}, rank));
    EXPECT_EQ(Run(stages, whole, file, 2, 40, BestIsa(), true).faults, expected.faults);
  }
}

// Fails where it is told to.
class Fragile final : public Operation {
 public:
  explicit Fragile(const std::atomic<int>& fails_at) : fails_at_(fails_at) {}
  std::string_view name() const override { return "fragile"; }
  std::string_view rule() const override { return "* ->"; }
  bool writes_state() const override { return true; }
  Split split() const override { return Split::kOwn; }
  void Run(const StepContext& step) const override {
    if (step.member == fails_at_) throw Failed("fragile: member {} has failed", step.member);
  }

 private:
  const std::atomic<int>& fails_at_;
};

TEST_F(RanksTest, FailTogetherWhereOneFailsAndGoOnAfterwards) {
  const GgufFile file = GgufFile::Open(Path("Q8_0"));
  const WholeGraph whole(false);
  const Format& format = *FindFormat(std::string_view("Q8_0"));
  ShardedGraph tensor =
      Tensor(whole, {"three", {{3, 5, 8}, {2, 4, 8}}, {100, 200, 300}}, false, format);
  ShardedGraph stages;
  stages.plan.mesh.pipeline = 3;
  for (int rank : {0, 1, 2}) stages.ranks.push_back(PipelineRank(whole, {1, 2, 4}, rank));
  for (ShardedGraph* sharded : {&tensor, &stages}) {
    for (size_t broken : {0, 1, 2}) {
      std::atomic<int> fails_at{-1};
      Graph& graph = sharded->ranks[broken];
      const std::vector<Node> nodes = graph.nodes;
      graph.nodes.insert(
          graph.nodes.begin() + 1,
          Node{std::make_shared<Fragile>(fails_at), {nodes[0].output}, kNoValue, -1});
      const std::vector<int> teams = {2, 2, 2};
      const auto group = ConnectRanks({.local_ranks = 3, .threads = teams});
      RankSet set(*sharded, file, 0, 3, {8, 8, false, true});
      const Format* f32 = FindFormat(std::string_view("F32"));
      set.Load(*group,
               {.threads = teams,
                .cpus = std::vector<std::vector<int>>(3),
                .kv = {f32, f32},
                .pages = 1,
                .slots = 1,
                .isa = BestIsa()},
               nullptr);
      Batch batch;
      batch.sequences.resize(1);
      for (int32_t i = 0; i < 8; ++i) {
        batch.outputs.push_back(i);
        batch.tokens.push_back(30 + i);
        batch.places.push_back({0, i});
      }
      set.Run(batch);
      const std::vector<float> expected(set.Result(whole.logits).begin(),
                                        set.Result(whole.logits).end());
      for (int member : {0, 1}) {
        fails_at = member;
        EXPECT_EQ(MessageOf([&] { set.Run(batch); }),
                  fmt::format("fragile: member {} has failed", member));
        fails_at = -1;
        set.Run(batch);
        const std::vector<float> found(set.Result(whole.logits).begin(),
                                       set.Result(whole.logits).end());
        EXPECT_EQ(found, expected);
      }
      graph.nodes = nodes;
    }
  }
}

}  // namespace
}  // namespace lockstep::test
