// Station 7, the program: what one rank executes. Steps in order, a buffer for each value, a barrier where threads must meet.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/thread_team.h"
#include "exec/kv_pool.h"
#include "exec/weights.h"
#include "graph/graph.h"

namespace lockstep {

struct ProgramOptions {
  int64_t max_tokens = 512;   // tokens of a batch
  int64_t max_outputs = 512;  // rows of a batch whose results are asked for
  bool hidden = false;        // keep the residual stream after every layer
  bool logits = true;
  std::vector<ValueId> kept = {};  // of the residual stream's values (Graph::hidden, final_hidden), results too
};

// The values of a graph that a program keeps; those that another rank makes are not among them.
std::vector<ValueId> KeptValues(const Graph& graph, const ProgramOptions& options);

// Which rows of a value are needed.
enum class Demand : uint8_t { kNone, kOutputs, kAll };

// What each collective makes on the ranks of one stage, in their common order: ranks run it for the same rows, also those that need nothing of it.
std::vector<Demand> CollectiveDemand(std::span<const Graph> ranks, const ProgramOptions& options);

// Which rows of a batch a value has.
enum class RowSet : uint8_t { kAll, kOutputs };

// A computed value in one form and one row set, and where it lives.
struct Slot {
  ValueId value = kNoValue;
  RowSet rows = RowSet::kAll;
  bool quantized = false;
  int64_t width = 0;   // numbers in a row
  int64_t offset = 0;  // in the arena
  int64_t bytes = 0;
  int32_t defined = 0;  // the step that writes it
  int32_t last_use = 0;
};

struct Step {
  OperationPtr op;
  std::string name;
  RowSet rows = RowSet::kAll;
  Split split = Split::kTokens;  // as chosen for this step
  bool barrier = false;          // before it; a collective is one itself
  std::vector<int32_t> in;       // slots, -1 for operands that are no computed value
  std::vector<ValueId> in_values;
  int32_t out = -1;  // slot
};

// The graph as steps. Adds what a graph does not say: activations are quantised once before the multiplications that want codes; rows whose
// results nobody asks for are left behind after the last step that needs them; barriers stand only where a thread reads
// what another wrote; buffers are shared by values that never live together.
class Program {
 public:
  // `quantized(weight)`: whether a weight wants its activations in codes. `collectives`: CollectiveDemand() of the graph's stage, where it has
  // collectives.
  Program(const Graph& graph, const std::function<bool(ValueId)>& quantized,
          const ProgramOptions& options, std::span<const Demand> collectives = {});

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const ProgramOptions& options() const { return options_; }
  int64_t arena_bytes() const { return arena_bytes_; }
  int64_t barriers() const;
  // The slot that holds a value's rows at the end of a run, kOutputs; -1 where the program does not keep it.
  int32_t result(ValueId value) const;
  // The slot that the rows that come with a batch are put in before the first step, kAll; -1 where the graph has none.
  int32_t input() const { return input_; }
  // One line a step: "12 | blk.0.q = linear(...)  columns, all rows  @0x4000".
  std::string Print(const Graph& graph) const;

 private:
  void Lower(const Graph& graph, const std::function<bool(ValueId)>& quantized);
  int32_t AddSlot(ValueId value, RowSet rows, bool quantized, int64_t width);
  int32_t SlotOf(const Graph& graph, ValueId value, RowSet rows, bool quantized);
  int32_t FindSlot(ValueId value, RowSet rows, bool quantized) const;
  void AddStep(Step step);
  void PlaceBarriers(const Graph& graph);
  void PlaceBuffers();

  ProgramOptions options_;
  std::vector<Demand> demand_;  // of each node's output, or of a node without one
  std::vector<ValueId> kept_;   // results
  std::vector<Step> steps_;
  std::vector<Slot> slots_;
  int32_t input_ = -1;
  int64_t arena_bytes_ = 0;
};

}  // namespace lockstep
