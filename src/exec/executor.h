// Station 9, steps: runs a program over batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/program.h"

namespace lockstep {

// One batch: rows of one sequence stand together, in ascending position.
struct Batch {
  std::vector<int32_t> tokens;       // [t]
  std::vector<AttentionRow> places;  // [t]
  std::vector<int32_t> outputs;      // rows whose results are asked for, ascending
};

class Executor {
 public:
  // All four must outlive the executor.
  Executor(const Graph& graph, const Program& program, const WeightStore& weights, KvPool& pool,
           ThreadTeam& team, const Kernels& kernels);

  // Runs a batch of at most max_tokens rows with at most max_outputs outputs.
  void Run(const Batch& batch);

  // Results of the last run. value: graph.logits, or what ProgramOptions::hidden keeps. [outputs, width]
  std::span<const float> Result(ValueId value) const;
  // The name of the first step that met a number that is not finite in this row of the last batch, empty where none did.
  std::string Fault(int64_t row) const;

  // Seconds member 0 spent in each step since the start, waiting for others included; filled where tracing is on.
  void SetTracing(bool on) { tracing_ = on; }
  const std::vector<double>& step_seconds() const { return step_seconds_; }

 private:
  void RunMember(int member);

  const Graph& graph_;
  const Program& program_;
  ThreadTeam& team_;
  const Kernels& kernels_;
  Buffer arena_;
  Buffer scratch_;
  Buffer shared_;
  size_t scratch_bytes_ = 0;                    // of one member
  std::vector<std::vector<Operand>> in_, out_;  // of each step

  // The batch at hand.
  BatchRows rows_[2];  // by RowSet
  std::span<const int32_t> index_[2];
  std::vector<int32_t> output_tokens_, all_index_;
  std::vector<AttentionRow> output_places_;
  FaultLog faults_;
  bool tracing_ = false;
  std::vector<double> step_seconds_;
};

}  // namespace lockstep
