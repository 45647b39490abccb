// A model file from its graph to its logits, for tests: stations 2 to 9 without an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/ranks.h"
#include "gguf/gguf_file.h"
#include "graph/graph.h"
#include "models/source.h"
#include "simd/isa.h"

namespace lockstep::test {

struct RunOptions {
  int threads = 1;
  Isa isa = BestIsa();
  int64_t micro_batch = 96;  // tokens of each sequence in a batch
  std::string kv_type = "F32";
  bool hidden = false;  // ask for the residual stream as well
  // Ranks, each of so many threads.
  int ranks = 1;
  SplitMode split = SplitMode::kTensor;
  std::vector<double> proportions = {};
  std::string seeds = Plan{}.seeds;  // axes that are cut
};

// Results of one sequence, of every position.
struct RunResult {
  std::vector<float> logits;               // [t, v]
  std::vector<std::vector<float>> hidden;  // [layers + 1][t, k]; the last has passed the final norm
  std::string fault;  // the step that met a number that is not finite, empty: none
};

class ModelRun {
 public:
  // Opens the file and states its graph. Throws what reading and stating throw.
  explicit ModelRun(const std::string& path, const ModelOptions& options = {});
  // The same with a graph of the caller's making.
  ModelRun(const std::string& path, Graph graph);

  const Graph& graph() const { return graph_; }
  const GgufFile& file() const { return file_; }
  int64_t vocab() const { return graph_.value(graph_.logits).shape[1].size; }

  // Runs whole sequences from position 0, all of them in every batch until they end.
  std::vector<RunResult> Run(const std::vector<std::vector<int32_t>>& sequences,
                             const RunOptions& options);
  // The same of the model's next-token block, on the hidden rows of a run in the same shape: row j is of the token at j + 1.
  std::vector<RunResult> RunNextToken(const std::vector<std::vector<int32_t>>& sequences,
                                      const RunOptions& options);

 private:
  // What a graph runs of one sequence: rows from position `first` on, each with a row of input where the graph takes some.
  struct Rows {
    std::vector<int32_t> tokens;
    int64_t first = 0;
    std::vector<float> input = {};
  };
  std::vector<RunResult> RunGraph(const Graph& graph, const std::vector<Rows>& sequences,
                                  const RunOptions& options);

  GgufFile file_;
  Graph graph_;
};

// Norm of the difference over norm of `expected`; infinite where sizes differ.
double RelativeDifference(std::span<const float> found, std::span<const float> expected);

// Whether both have the same bits.
bool SameBits(std::span<const float> a, std::span<const float> b);

// ModelRun::Run() of a model, or RunNextToken().
using Runner = std::function<std::vector<RunResult>(
    const std::vector<std::vector<int32_t>>& sequences, const RunOptions& options)>;

// How the logits of a prompt depend on the shape of the run: empty where every instruction set, every
// number of threads, micro-batches of all sizes and batch mates give the same bits, else one line
// about the first that does not.
std::string ShapeDependence(const Runner& run, const std::vector<int32_t>& tokens,
                            const std::string& kv_type);
std::string ShapeDependence(ModelRun& model, const std::vector<int32_t>& tokens,
                            const std::string& kv_type);

// The same of ranks: numbers of them, even and uneven shares, some with nothing, of tensors and of layers, and cuts along other axes
// than those of a usual plan; `most` splits, the first of which differ most.
std::string RankDependence(const Runner& run, const std::vector<int32_t>& tokens,
                           const std::string& kv_type, size_t most = SIZE_MAX);
std::string RankDependence(ModelRun& model, const std::vector<int32_t>& tokens,
                           const std::string& kv_type, size_t most = SIZE_MAX);

}  // namespace lockstep::test
