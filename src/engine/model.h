// A model opened for running: file, tokenizer, plan, and ranks with weights, programs, caches and threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_team.h"
#include "exec/ranks.h"
#include "gguf/gguf_file.h"
#include "graph/graph.h"
#include "models/drafts.h"
#include "simd/isa.h"
#include "text/tokenizer.h"

namespace lockstep {

class Model;

struct LoadOptions {
  std::string path;
  int64_t context = 0;  // positions of one sequence; 0: the model's own, less where memory is short
  int64_t micro_batch = 512;  // tokens computed at once, at least one for each sequence
  int64_t sequences = 1;      // sequences that run side by side, each with `context` positions
  int threads = 0;  // of this process, shared out over its ranks; 0: one for each usable core
  int ranks = 1;    // of this process; under mpirun those of all processes count
  SplitMode split = SplitMode::kTensor;
  std::vector<double> proportions;  // of all ranks; empty: equal
  ExpertSplit experts = ExpertSplit::kSlices;
  double lost_after_seconds = 8;    // that a process may be silent
  int64_t snapshots = -1;     // recurrent states kept at the ends of cached prefixes; below 0: two a sequence and two more
  std::string k_type = "f16", v_type = "f16";
  // Heads are rotated before they are cached: where a cache has so few bits that it helps, or always or never.
  enum class KvRotation { kOn, kOff, kAuto };
  KvRotation kv_rotation = KvRotation::kAuto;
  int64_t memory_limit = 0;  // bytes the model may take; 0: what the system has free
  std::optional<Isa> isa = {};  // none: BestIsa()
  int64_t outputs = 0;       // rows of logits that a batch may ask for; 0: what 64 MiB hold, at least one a sequence
  bool trace = false;        // measure steps (Executor::SetTracing)
  bool hidden = false;       // keep the residual stream after every layer (ProgramOptions::hidden)
  // Called where the process leads, before weights are read, when file, tokenizer, graph and context are known: throws Refused for what the
  // caller cannot run.
  std::function<void(const Model&)> accept;
  bool next_token = false;   // open the next-token block too, and keep the rows that it goes on from
  std::string draft = {};    // a draft checkpoint for this model, opened beside it
  // Called while weights are read, with bytes done and bytes in all.
  std::function<void(int64_t done, int64_t all)> progress;
};

// The program of a model opened with these options: how many tokens and results a batch may have.
ProgramOptions ProgramOptionsFor(const Graph& graph, const LoadOptions& options);

// The types of the caches, and what the options say of the file's graphs. Throw Refused for a type that is none.
KvTypes KvTypesFor(const LoadOptions& options);
ModelOptions GraphOptionsFor(const LoadOptions& options);

// What a file is, to tell one from another without reading its weights: SHA-256 of metadata, directories and size.
std::string FileIdentity(const GgufFile& file);

// A graph that runs beside a model's, on the same ranks, pages and slots.
struct SideGraph {
  Graph graph;
  ShardedGraph sharded;
  std::unique_ptr<RankSet> ranks;
};

// A draft checkpoint, and its graphs.
struct DraftModel {
  explicit DraftModel(GgufFile opened) : file(std::move(opened)) {}

  GgufFile file;
  DraftGraphs graphs;  // of which the graphs themselves are below
  std::unique_ptr<SideGraph> context, graph;

  // Rows of logits of a draft of which at most `most` tokens are wanted: a block is drafted as a whole.
  int64_t rows(int64_t most) const { return graphs.block != 0 ? graphs.block - 1 : most; }
  // Rows as the draft ends, and numbers in one: of a block one for its first token, too.
  int64_t hidden_rows(int64_t most) const { return rows(most) + (graphs.block != 0); }
  int64_t hidden_width() const;
};

class Model {
 public:
  // Throws Refused for a file or options that are not acceptable, before weights are read where the model cannot fit in memory. Where
  // several processes open it together, all throw where one does, and where their files, builds or options differ.
  explicit Model(const LoadOptions& options);

  // Whether this process decides what is computed. In others only Follow() may be called, which returns when the leader closes its model.
  bool leads() const { return group_->leads(); }
  void Follow() { ranks_->Follow(); }

  const GgufFile& file() const { return *file_; }
  const Graph& graph() const { return graph_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ShardedGraph& sharded() const { return sharded_; }
  RankSet& ranks() { return *ranks_; }
  const RankSet& ranks() const { return *ranks_; }
  // The next-token block, where it was asked for.
  SideGraph& next_token() { return *next_token_; }
  // The draft, null where none was asked for.
  DraftModel* draft() { return draft_.get(); }
  const DraftModel* draft() const { return draft_.get(); }
  const KvTypes& kv_types() const { return kv_types_; }
  const ModelOptions& graph_options() const { return graph_options_; }
  // A team of all threads of this process, for work between batches.
  ThreadTeam& team();
  int threads() const;
  Isa isa() const { return isa_; }

  int64_t vocab() const;
  int64_t context() const { return context_; }
  int64_t trained_context() const { return trained_context_; }
  // Of this process.
  int64_t weight_bytes() const { return ranks_->weight_bytes(); }
  // Bytes of weights that one token reads, and of K and V for each position it sees: what bounds decoding.
  int64_t bytes_per_token() const { return ranks_->token_bytes(); }
  int64_t kv_bytes_per_position() const { return ranks_->page_bytes(kv_types_) / kPageTokens; }

 private:
  void Connect(const LoadOptions& options);
  void Open(const LoadOptions& options);
  void ExpectAlike(const LoadOptions& options) const;
  void MakePrograms(const LoadOptions& options);
  ShardedGraph Sharded(const Graph& graph, const GgufFile& file, const LoadOptions& options) const;
  void OpenDraft(const LoadOptions& options);
  void AddSideGraphs(const LoadOptions& options);
  // Adds a graph of a file beside the model's, before that is loaded.
  std::unique_ptr<SideGraph> Beside(Graph graph, const GgufFile& file,
                                    const ProgramOptions& program, const LoadOptions& options);
  // In the order in which they were added.
  std::vector<SideGraph*> side_graphs() const;
  void ChooseContext(const LoadOptions& options);
  void Load(const LoadOptions& options);
  // Does this process's part of opening; all processes fail where one does.
  void Together(FunctionRef<void()> part) const;

  std::vector<std::vector<int>> cpus_;  // of each rank
  std::vector<int> threads_;
  std::unique_ptr<RankGroup> group_;
  std::optional<GgufFile> file_;
  std::optional<Tokenizer> tokenizer_;
  Graph graph_;
  ShardedGraph sharded_;
  KvTypes kv_types_;
  ModelOptions graph_options_;
  Isa isa_;
  int64_t context_ = 0, trained_context_ = 0, snapshots_ = 0;
  std::unique_ptr<RankSet> ranks_;
  std::unique_ptr<SideGraph> next_token_;
  std::unique_ptr<DraftModel> draft_;
  std::unique_ptr<ThreadTeam> all_threads_;
};

}  // namespace lockstep
