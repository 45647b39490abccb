// A model opened for running: file, tokenizer, weights, program, cache and threads, on one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/thread_team.h"
#include "exec/executor.h"
#include "gguf/gguf_file.h"
#include "graph/graph.h"
#include "simd/isa.h"
#include "text/tokenizer.h"

namespace lockstep {

struct LoadOptions {
  std::string path;
  int64_t context = 0;  // positions of one sequence; 0: the model's own, less where memory is short
  int64_t micro_batch = 512;  // tokens computed at once, at least one for each sequence
  int64_t sequences = 1;      // sequences that run side by side, each with `context` positions
  int threads = 0;            // 0: one for each usable core
  int64_t snapshots = -1;     // recurrent states kept at the ends of cached prefixes; below 0: two a sequence and two more
  std::string k_type = "f16", v_type = "f16";
  // Heads are rotated before they are cached: where a cache has so few bits that it helps, or always or never.
  enum class KvRotation { kOn, kOff, kAuto };
  KvRotation kv_rotation = KvRotation::kAuto;
  int64_t memory_limit = 0;  // bytes the model may take; 0: what the system has free
  bool hidden = false;       // keep the residual stream after every layer (ProgramOptions::hidden)
  // Called while weights are read, with bytes done and bytes in all.
  std::function<void(int64_t done, int64_t all)> progress;
};

// The program of a model opened with these options: how many tokens and results a batch may have.
ProgramOptions ProgramOptionsFor(const Graph& graph, const LoadOptions& options);

class Model {
 public:
  // Throws Refused for a file or options that are not acceptable, before weights are read where the model cannot fit in memory.
  explicit Model(const LoadOptions& options);

  const GgufFile& file() const { return file_; }
  const Graph& graph() const { return graph_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Program& program() const { return *program_; }
  Executor& executor() { return *executor_; }
  KvPool& pool() { return *pool_; }
  RecurrentPool& recurrent() { return *recurrent_; }
  ThreadTeam& team() { return *team_; }
  Isa isa() const { return isa_; }

  int64_t vocab() const;
  int64_t context() const { return context_; }
  int64_t trained_context() const { return trained_context_; }
  int64_t weight_bytes() const { return weights_->bytes(); }
  // Bytes of weights that one token reads, and of K and V for each position it sees: what bounds decoding.
  int64_t bytes_per_token() const { return bytes_per_token_; }
  int64_t kv_bytes_per_position() const { return pool_->page_bytes() / kPageTokens; }

 private:
  void ChooseContext(const LoadOptions& options, int64_t weight_bytes, const KvTypes& types);

  GgufFile file_;
  Tokenizer tokenizer_;
  Graph graph_;
  Isa isa_;
  int64_t context_ = 0, trained_context_ = 0, bytes_per_token_ = 0;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<RecurrentPool> recurrent_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace lockstep
