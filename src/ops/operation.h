// An operation as the graph, the sharder and the program see it: a rule, attributes, and a share of work for each thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "formats/gemm.h"
#include "ops/attention.h"
#include "ops/factor_rule.h"
#include "ops/kernels.h"
#include "ops/recurrent.h"
#include "tensor/axis.h"

namespace lockstep {

// What an operation does with an operand, and so in which form a leaf is held.
enum class OperandKind {
  kRows,       // f32 [t, ...], computed
  kQuantized,  // the same in 8-bit codes (QuantizedRows)
  kMatrix,     // a weight [n, k] packed for multiplication
  kExperts,    // a weight [e, n, k], each expert's (or head's) matrix packed for multiplication
  kVector,     // a weight [n] as f32
  kTable,      // a weight [v, n] read by rows, as the file stores it
  kState,      // cached K or V of one layer, or its recurrent state
  kTokens,     // the batch's token ids
};

struct Rows {
  float* data = nullptr;
  int64_t width = 0;  // floats in a row, and between rows
  float* row(int64_t t) const { return data + t * width; }
};

struct Table {
  const Format* format = nullptr;
  const std::byte* data = nullptr;
  int64_t rows = 0, width = 0;
};

// Where one layer's K and V lie in a page.
struct StateView {
  const KvLayout* layout = nullptr;
  int64_t k_offset = 0, v_offset = 0;
};

// Matrices of one shape and format, one for each expert.
using Experts = std::span<const PackedMatrix>;

using Operand = std::variant<std::monostate, Rows, QuantizedRows, const PackedMatrix*, Experts,
                             std::span<const float>, Table, StateView, RecurrentView>;

// The tokens of a batch: what they are, and where their sequences lie.
struct BatchRows {
  std::span<const int32_t> tokens;       // [t]
  std::span<const AttentionRow> places;  // [t]
};

// The first thing that went wrong in a run: which step met a number that is not finite, at which row of the batch.
// Rows of other requests are not touched by it.
class FaultLog {
 public:
  explicit FaultLog(int64_t rows) : step_(static_cast<size_t>(rows)) { Clear(); }
  void Clear() {
    for (auto& step : step_) step.store(-1, std::memory_order_relaxed);
  }
  // Remembers the earliest step only, whatever the threads' timing.
  void Report(int64_t row, int32_t step) {
    int32_t seen = step_[static_cast<size_t>(row)].load(std::memory_order_relaxed);
    while ((seen < 0 || step < seen) &&
           !step_[static_cast<size_t>(row)].compare_exchange_weak(seen, step)) {
    }
  }
  // The step that failed for this row, or -1.
  int32_t step(int64_t row) const {
    return step_[static_cast<size_t>(row)].load(std::memory_order_relaxed);
  }

 private:
  std::vector<std::atomic<int32_t>> step_;
};

// How the threads of a team divide a step. Two steps in a row that divide alike need no barrier between them where the second reads
// only what the same thread wrote.
enum class Split {
  kTokens,   // runs of tokens
  kColumns,  // runs of columns, cut at multiples of kColumnUnit
  kEither,  // tokens or columns, whichever the step before did: column c of the output needs column c of the inputs
  kOwn,     // in a way of its own
};

// Columns are dealt to threads in runs of two panels, which hold whole activation blocks.
inline constexpr int64_t kColumnUnit = 2 * kPanelRows;

// One thread's view of a step.
struct StepContext {
  const Kernels& kernels;
  int member;   // this thread
  int members;  // threads of the team
  Split split;  // kTokens or kColumns where the operation can do either
  std::span<const Operand> in;
  std::span<const Operand> out;
  BatchRows rows;                      // the rows this step computes
  std::span<const int32_t> row_index;  // their places in the whole batch
  std::span<std::byte> scratch;        // this thread's own
  FaultLog* faults;
  int32_t step;  // for the fault log
  // For operations whose threads meet inside a step; both are there or neither is.
  std::span<std::byte> shared = {};  // one piece for the whole team
  ThreadTeam* team = nullptr;
  Communicator* comm = nullptr;

  int64_t tokens() const { return static_cast<int64_t>(rows.places.size()); }
  const Rows& in_rows(size_t i) const { return std::get<Rows>(in[i]); }
  const Rows& out_rows(size_t i = 0) const { return std::get<Rows>(out[i]); }
  // This thread's part of [0, size), cut at multiples of unit.
  WorkRange Share(int64_t size, int64_t unit = 1) const {
    return ShareOf(size, unit, member, members);
  }
};

// How a summed run of an operation may be cut: leaves of `length` numbers each, the last perhaps of fewer, that meet in the canonical tree.
struct SumLeaves {
  int64_t size = 0;    // numbers of the run
  int64_t length = 0;  // 0: it may not be cut
  // Where the run is summed within a sum that ranks have whole: its leaves stand in that tree `repeats` times, `stride` apart, a power of two
  // and no fewer than they are.
  int64_t repeats = 1, stride = 0;

  int64_t count() const { return length == 0 ? 1 : (size + length - 1) / length; }
  // Leaves of the tree.
  int64_t total() const { return stride == 0 ? count() : repeats * stride; }
  // The subtrees of a rank that owns these of count() leaves, ascending.
  std::vector<LeafRange> Roots(const LeafRange& owned) const;
};

// What a rank does of a sum.
struct SumPart {
  char factor = 0;  // that is cut; 0: none
  SumLeaves sum;
  LeafRange leaves;  // of its count() that the rank owns, at least one

  bool cut() const { return factor != 0; }
};

// Sees one row x: [k] that a weight was multiplied by. weight: which operand of the operation; expert: 0 where it is one matrix.
using MultipliedRowFn = void(size_t weight, int64_t expert, std::span<const float> x);

class Operation {
 public:
  virtual ~Operation() = default;
  // "rms_norm": as prints and errors name it.
  virtual std::string_view name() const = 0;
  // The factor rule (ops/factor_rule.h); states are inputs, whether read or written.
  virtual std::string_view rule() const = 0;
  // "eps=1e-06", empty where there are none.
  virtual std::string attributes() const { return ""; }
  // Axes of factors that no operand carries.
  virtual FactorRule::OwnAxes own_axes() const { return {}; }
  virtual OperandKind operand(size_t) const { return OperandKind::kRows; }
  // The weights that multiply computed operand `i`: it comes in 8-bit codes where they are quantised, all or none of them.
  virtual std::vector<size_t> multiplied_by(size_t) const { return {}; }
  // Whether the step writes a state, so that all rows of a batch must take part in it.
  virtual bool writes_state() const { return false; }
  // The leaves of the sum over a factor of the rule that the output lacks, or over a run of them. formats: of each operand, null for those
  // that are no weights.
  virtual SumLeaves sum_leaves(char /*factor*/, std::span<const Shape> /*operands*/,
                               std::span<const Format* const> /*formats*/) const {
    return {};
  }
  // The same operation over a rank's part of that sum; its output has the roots, [t, p, *] (ops/collective.h). Null where sum_leaves() allows
  // no cut.
  virtual std::shared_ptr<const Operation> part_of_sum(const SumPart&) const { return nullptr; }
  virtual Split split() const = 0;
  // Bytes of scratch a thread needs for these operands and at most `tokens` rows.
  virtual size_t scratch_bytes(std::span<const Operand>, int64_t) const { return 0; }
  // Whether threads meet inside the step, over memory that the team shares: such steps stand in different phases.
  virtual bool meets() const { return false; }
  // Bytes that the team shares in such a step.
  virtual size_t shared_bytes(std::span<const Operand>, int64_t) const { return 0; }
  // Whether the step is one of step.comm's collectives: threads of all ranks meet in it, and its operands must not change until they
  // meet in the next.
  virtual bool collective() const { return false; }
  // Does this thread's share.
  virtual void Run(const StepContext& step) const = 0;
  // Shows every row that a weight of this step was multiplied by, row after row; on one thread, when all have run the step and none has
  // gone on. Rows in codes are shown as what the codes stand for.
  virtual void ShowMultiplied(const StepContext& step, FunctionRef<MultipliedRowFn> see) const;

 protected:
  // Calls run(token, first column, last column) for this thread's share of [tokens, width].
  template <typename F>
  static void ForShare(const StepContext& step, int64_t width, F run) {
    if (step.split == Split::kColumns) {
      const WorkRange share = step.Share(width, kColumnUnit);
      if (share.size() == 0) return;
      for (int64_t t = 0; t < step.tokens(); ++t) run(t, share.begin, share.end);
    } else {
      const WorkRange share = step.Share(step.tokens());
      for (int64_t t = share.begin; t < share.end; ++t) run(t, int64_t{0}, width);
    }
  }
};

}  // namespace lockstep
