// Station 9, steps: runs a program over batches.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "exec/program.h"
#include "exec/recurrent_pool.h"

namespace lockstep {

// Where the state of one sequence lies, in the pools of every rank alike. Spans are valid while the batch runs.
struct BatchSequence {
  std::span<const int32_t> pages;  // page i holds positions 64 i .. 64 i + 63
  // Of graphs with recurrent states (RecurrentPool). A slot goes on from where it stands or from a position that it can go back to; at
  // position 0 it begins anew.
  int64_t slot = -1;
  int64_t restore = -1;  // the snapshot, taken at the first row's position, with which the slot begins; -1: none
  int64_t save = -1;     // the snapshot to take at position save_at, among the rows or at one of their ends; -1: none
  int64_t save_at = 0;
};

struct BatchPlace {
  int32_t sequence = 0;  // index into Batch::sequences
  int64_t position = 0;
};

// One batch: rows of one sequence stand together, in ascending position.
struct Batch {
  std::vector<int32_t> tokens;     // [t]
  std::vector<BatchPlace> places;  // [t]
  std::vector<BatchSequence> sequences;
  std::vector<int32_t> outputs;  // rows whose results are asked for, ascending
  std::span<const float> input = {};  // of graphs that take rows (Graph::input), [t, width]; valid until Run() begins its steps
};

class Executor {
 public:
  // All must outlive the executor. Both pools are made for the same states, among them the graph's by their names.
  Executor(const Graph& graph, const Program& program, const WeightStore& weights, KvPool& pool,
           RecurrentPool& recurrent, ThreadTeam& team, const Kernels& kernels, Communicator& comm);

  // Runs a batch of at most max_tokens rows with at most max_outputs outputs.
  void Run(const Batch& batch);

  // Results of the last run. value: graph.logits, or what ProgramOptions::hidden keeps. [outputs, width]
  std::span<const float> Result(ValueId value) const;
  // The first step that met a number that is not finite in this row of the last batch, null where none did.
  const Step* Fault(int64_t row) const;

  // Sees every row x: [k] that a weight is multiplied by, while it is set; expert: 0 where the weight is one matrix. Called by one thread at a
  // time. Empty: nobody looks.
  using Observer = std::function<void(ValueId weight, int64_t expert, std::span<const float> x)>;
  void SetObserver(Observer observer) { observer_ = std::move(observer); }

  // Seconds member 0 spent in each step since the start, waiting for others included; filled where tracing is on.
  void SetTracing(bool on) { tracing_ = on; }
  const std::vector<double>& step_seconds() const { return step_seconds_; }

 private:
  void RunMember(int member);
  void Observe(const StepContext& context, const Step& step);
  void RunSteps(int member);
  // Turns the places of a batch into addresses in this rank's pool.
  void PlaceRows(const Batch& batch);
  void TakeInput(const Batch& batch);
  // Makes the slots of recurrent states ready for the rows in places_, and moves them past the rows.
  void BeginSlots(const Batch& batch);
  void MoveSlots();

  const Graph& graph_;
  const Program& program_;
  KvPool& pool_;
  RecurrentPool& recurrent_;
  ThreadTeam& team_;
  const Kernels& kernels_;
  Communicator& comm_;
  Buffer arena_;
  Buffer scratch_;
  Buffer shared_;
  bool moves_slots_ = false;  // whether a step has a recurrent state: other graphs' slots are not this one's to move
  size_t scratch_bytes_ = 0;                    // of one member
  std::vector<std::vector<Operand>> in_, out_;  // of each step

  // The batch at hand.
  BatchRows rows_[2];  // by RowSet
  std::span<const int32_t> index_[2];
  std::vector<int32_t> output_tokens_, all_index_;
  std::vector<const std::byte*> pages_;  // of all sequences, one after the other
  std::vector<AttentionRow> places_, output_places_;
  FaultLog faults_;
  Observer observer_;
  bool tracing_ = false;
  std::vector<double> step_seconds_;
};

}  // namespace lockstep
