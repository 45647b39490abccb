#include "model_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "comm/communicator.h"
#include "models/models.h"

namespace lockstep::test {
namespace {

// Pages of all sequences. They lie in the pool in an order of their own, so that nothing may rest on
// neighbours.
class Pages {
 public:
  // lengths: positions of each sequence.
  explicit Pages(const std::vector<int64_t>& lengths)
      : count_(PagesOf(lengths)), tables_(lengths.size()) {
    int64_t next = count_;
    for (int64_t page = 0; next > 0; ++page) {
      for (size_t s = 0; s < lengths.size(); ++s) {
        if (page * kPageTokens < lengths[s]) tables_[s].push_back(static_cast<int32_t>(--next));
      }
    }
  }

  int64_t count() const { return count_; }
  std::span<const int32_t> table(size_t sequence) const { return tables_[sequence]; }

 private:
  static int64_t PagesOf(const std::vector<int64_t>& lengths) {
    int64_t pages = 0;
    for (int64_t length : lengths) pages += CeilDiv(length, kPageTokens);
    return pages;
  }

  const int64_t count_;
  std::vector<std::vector<int32_t>> tables_;
};

void Append(std::span<const float> rows, std::vector<float>& to) {
  to.insert(to.end(), rows.begin(), rows.end());
}

// The values that results keep as hidden rows. The last residual stream of a model is wanted under its norm, that of a block beside it as it
// is.
std::vector<ValueId> HiddenOf(const Graph& graph) {
  std::vector<ValueId> hidden = graph.hidden;
  if (graph.input == kNoValue) hidden.back() = graph.final_hidden;
  return hidden;
}

// Takes each sequence's rows of the batch that just ran; rows[s]: how many it had.
void Collect(const RankSet& executor, const Graph& graph, const std::vector<size_t>& rows,
             bool hidden, std::vector<RunResult>& results) {
  const std::vector<ValueId> streams = HiddenOf(graph);
  auto take = [&](ValueId id, size_t first, size_t count) {
    size_t width = 1;
    for (size_t i = 1; i < graph.value(id).shape.rank(); ++i)
      width *= static_cast<size_t>(graph.value(id).shape[i].size);
    return executor.Result(id).subspan(first * width, count * width);
  };
  size_t first = 0;
  for (size_t s = 0; s < rows.size(); ++s) {
    RunResult& result = results[s];
    Append(take(graph.logits, first, rows[s]), result.logits);
    if (hidden) result.hidden.resize(streams.size());
    for (size_t i = 0; i < result.hidden.size(); ++i)
      Append(take(streams[i], first, rows[s]), result.hidden[i]);
    for (size_t row = first; row < first + rows[s] && result.fault.empty(); ++row) {
      result.fault = executor.Fault(static_cast<int64_t>(row));
    }
    first += rows[s];
  }
}

}  // namespace

ModelRun::ModelRun(const std::string& path, const ModelOptions& options)
    : file_(GgufFile::Open(path)), graph_(BuildGraph(ModelSource(file_, options))) {}

ModelRun::ModelRun(const std::string& path, Graph graph)
    : file_(GgufFile::Open(path)), graph_(std::move(graph)) {}

std::vector<RunResult> ModelRun::Run(const std::vector<std::vector<int32_t>>& sequences,
                                     const RunOptions& options) {
  std::vector<Rows> rows;
  for (const auto& tokens : sequences) rows.push_back({tokens});
  return RunGraph(graph_, rows, options);
}

std::vector<RunResult> ModelRun::RunNextToken(const std::vector<std::vector<int32_t>>& sequences,
                                              const RunOptions& options) {
  const Graph block = BuildNextTokenGraph(ModelSource(file_, ModelOptions{}), graph_);
  RunOptions with_hidden = options;
  with_hidden.hidden = true;
  const std::vector<RunResult> model = Run(sequences, with_hidden);
  std::vector<Rows> rows;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const std::vector<float>& hidden = model[s].hidden.back();
    const size_t width = hidden.size() / sequences[s].size();
    rows.push_back({.tokens = {sequences[s].begin() + 1, sequences[s].end()},
                    .first = 1,
                    .input = {hidden.begin(), hidden.end() - static_cast<int64_t>(width)}});
  }
  return RunGraph(block, rows, options);
}

std::vector<RunResult> ModelRun::RunGraph(const Graph& graph, const std::vector<Rows>& sequences,
                                          const RunOptions& options) {
  Plan plan = MakePlan(options.split, options.ranks, options.proportions);
  plan.seeds = options.seeds;
  const ShardedGraph sharded = Shard(
      graph, plan,
      [&](const WeightSource& source) -> const Format& { return WeightFormat(file_, source); });
  const std::vector<int> threads(static_cast<size_t>(options.ranks), options.threads);
  const auto group = ConnectRanks({.local_ranks = options.ranks, .threads = threads});
  const int64_t most = options.micro_batch * std::ssize(sequences);
  RankSet ranks(sharded, file_, 0, options.ranks, {most, most, options.hidden, true});
  std::vector<int64_t> lengths;
  for (const Rows& rows : sequences) lengths.push_back(rows.first + std::ssize(rows.tokens));
  const Pages pages(lengths);
  const Format* kv = FindFormat(options.kv_type);
  ranks.Load(*group,
             {.threads = threads,
              .cpus = std::vector<std::vector<int>>(threads.size()),
              .kv = {kv, kv},
              .pages = pages.count(),
              .slots = std::ssize(sequences),
              .isa = options.isa},
             nullptr);

  std::vector<RunResult> results(sequences.size());
  for (size_t begin = 0;; begin += static_cast<size_t>(options.micro_batch)) {
    Batch batch;
    std::vector<size_t> counts;
    std::vector<float> input;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const Rows& rows = sequences[s];
      const size_t end =
          std::min(rows.tokens.size(), begin + static_cast<size_t>(options.micro_batch));
      counts.push_back(end > begin ? end - begin : 0);
      batch.sequences.push_back({pages.table(s), static_cast<int64_t>(s)});
      for (size_t i = begin; i < end; ++i) {
        batch.outputs.push_back(static_cast<int32_t>(batch.tokens.size()));
        batch.tokens.push_back(rows.tokens[i]);
        batch.places.push_back({static_cast<int32_t>(s), rows.first + static_cast<int64_t>(i)});
      }
      const size_t width = rows.input.size() / std::max<size_t>(rows.tokens.size(), 1);
      Append(std::span(rows.input).subspan(std::min(begin, end) * width, counts.back() * width),
             input);
    }
    if (batch.tokens.empty()) return results;
    batch.input = input;
    ranks.Run(batch);
    Collect(ranks, graph, counts, options.hidden, results);
  }
}

double RelativeDifference(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += (double{found[i]} - expected[i]) * (double{found[i]} - expected[i]);
    norm += double{expected[i]} * expected[i];
  }
  return std::sqrt(difference / norm);
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::string ShapeDependence(const Runner& run, const std::vector<int32_t>& tokens,
                            const std::string& kv_type) {
  struct Shape {
    int threads;
    int64_t micro_batch;
  };
  constexpr Shape kShapes[] = {{1, 96}, {2, 1}, {1, 7}, {2, 33}, {3, 96}};
  const std::vector<float> expected = run({tokens}, {.kv_type = kv_type})[0].logits;
  for (Isa isa : AvailableIsas()) {
    for (const auto [threads, micro_batch] : kShapes) {
      const RunOptions options = {
          .threads = threads, .isa = isa, .micro_batch = micro_batch, .kv_type = kv_type};
      const std::vector<float> found = run({tokens}, options)[0].logits;
      if (SameBits(found, expected)) continue;
      return fmt::format("{}, {} threads, micro-batches of {}: differs by {}", IsaName(isa),
                         threads, micro_batch, RelativeDifference(found, expected));
    }
  }
  // Lengths that end apart, so that the batch loses sequences on its way.
  const std::vector<std::vector<int32_t>> mates = {
      {tokens.rbegin(), tokens.rend()},
      tokens,
      {tokens.begin(), tokens.begin() + std::ssize(tokens) / 3}};
  for (int64_t micro_batch : {5, 96}) {
    const auto together =
        run(mates, {.threads = 2, .micro_batch = micro_batch, .kv_type = kv_type});
    for (size_t s = 0; s < mates.size(); ++s) {
      const std::vector<float> alone = run({mates[s]}, {.kv_type = kv_type})[0].logits;
      if (SameBits(together[s].logits, alone)) continue;
      return fmt::format("sequence {} of {} in micro-batches of {}: differs by {}", s, mates.size(),
                         micro_batch, RelativeDifference(together[s].logits, alone));
    }
  }
  return "";
}

std::string RankDependence(const Runner& run, const std::vector<int32_t>& tokens,
                           const std::string& kv_type, size_t most) {
  struct Split {
    SplitMode mode;
    std::vector<double> shares;
    int64_t micro_batch;
    std::string seeds = Plan{}.seeds;
  };
  constexpr SplitMode kTensor = SplitMode::kTensor, kLayer = SplitMode::kLayer;
  const std::vector<Split> splits = {{kTensor, {1, 1}, 96},
                                     {kTensor, {1, 3}, 7},
                                     {kTensor, {1, 1, 1, 1}, 33},
                                     {kLayer, {1, 1}, 96},
                                     {kTensor, {1, 1, 1}, 96},
                                     {kTensor, {7, 1}, 1},
                                     {kTensor, {1, 0}, 33},
                                     {kTensor, {0, 2, 1}, 96},
                                     {kLayer, {3, 1}, 7},
                                     {kLayer, {1, 0}, 33},
                                     {kTensor, {1, 1}, 96, "f"},
                                     {kTensor, {1, 2}, 96, "kn"},
                                     {kTensor, {2, 1, 1}, 96, "nvu"},
                                     {kTensor, {1, 1}, 96, "efdr"},
                                     {kTensor, {1, 1, 1}, 96, "rk"}};
  const std::vector<float> expected = run({tokens}, {.kv_type = kv_type})[0].logits;
  for (const Split& split : std::span(splits).first(std::min(most, splits.size()))) {
    RunOptions options = {.micro_batch = split.micro_batch, .kv_type = kv_type};
    options.threads = split.micro_batch == 33 ? 2 : 1;
    options.ranks = static_cast<int>(split.shares.size());
    options.split = split.mode;
    options.proportions = split.shares;
    options.seeds = split.seeds;
    const std::vector<float> found = run({tokens}, options)[0].logits;
    if (SameBits(found, expected)) continue;
    return fmt::format("{}, shares {}, along {}: differs by {}", SplitModeName(split.mode),
                       fmt::join(split.shares, ":"), split.seeds, RelativeDifference(found, expected));
  }
  return "";
}

namespace {

Runner RunnerOf(ModelRun& model) {
  return [&](const auto& sequences, const RunOptions& options) {
    return model.Run(sequences, options);
  };
}

}  // namespace

std::string ShapeDependence(ModelRun& model, const std::vector<int32_t>& tokens,
                            const std::string& kv_type) {
  return ShapeDependence(RunnerOf(model), tokens, kv_type);
}

std::string RankDependence(ModelRun& model, const std::vector<int32_t>& tokens,
                           const std::string& kv_type, size_t most) {
  return RankDependence(RunnerOf(model), tokens, kv_type, most);
}

}  // namespace lockstep::test
