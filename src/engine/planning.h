// What ranks would have of a model, found from the head of its file: no weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model.h"
#include "shard/cost.h"

namespace lockstep {

// What one rank would hold, in bytes.
struct RankHoldings {
  int32_t stage = 0;
  int64_t weights = 0;  // in memory of its own; tables of embeddings stay in the file's map
  int64_t page = 0;     // of K and V: kPageTokens positions of one sequence
  int64_t states = 0;   // recurrent, of one sequence
  int64_t buffers = 0;  // of a program for LoadOptions::micro_batch tokens
  RankLoad load;
};

struct PlannedRun {
  ShardedGraph sharded;
  std::vector<RankHoldings> ranks;

  std::vector<RankLoad> loads() const;
};

class PlannedModel {
 public:
  // Opens the file named by the options, which are those of a run. Throws Refused as Model does for what the head of the file shows.
  explicit PlannedModel(const LoadOptions& options);

  const GgufFile& file() const { return file_; }
  const Graph& graph() const { return graph_; }
  int64_t context() const { return context_; }
  // Throws Refused where the plan cannot be followed.
  PlannedRun Cut(const Plan& plan) const;

 private:
  RankHoldings Holdings(const ShardedGraph& sharded, int32_t rank) const;
  RankLoad Load(const RankSet& rank) const;

  const LoadOptions options_;
  const GgufFile file_;
  const KvTypes kv_types_;
  Graph graph_;
  int64_t context_ = 0;
};

}  // namespace lockstep
