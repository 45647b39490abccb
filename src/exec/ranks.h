// The ranks of a model that live in this process, driven together: to whoever schedules, one executor.
//
// Each rank is a team of threads with a program, weights, caches and buffers of its own. Ranks in other processes follow: they are
// told every batch and run it at the same time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "exec/state_image.h"
#include "shard/shard.h"

namespace lockstep {

struct RankOptions {
  std::vector<int> threads;            // of each rank of this process
  std::vector<std::vector<int>> cpus;  // to pin them to; empty: as the system likes
  KvTypes kv;
  int64_t pages = 0;
  int64_t slots = 0, snapshots = 0;  // of recurrent states
  Isa isa = Isa::kPortable;
  bool trace = false;  // Executor::SetTracing()
};

class RankSet {
 public:
  // Finds weights and makes programs for ranks first_rank .. first_rank + local_ranks - 1 of a plan; reads no weight. What it is given
  // must outlive it. Throws as FindWeights() does.
  // model: of the graph beside which this one runs (Graph::states), with as many ranks and not yet loaded; teams, caches and slots are its, and
  // matrices that it has packed from the same bytes.
  RankSet(const ShardedGraph& sharded, const GgufFile& file, int first_rank, int local_ranks,
          const ProgramOptions& options, RankSet* model = nullptr);
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;
  // In the leading process, lets Follow() return in the others.
  ~RankSet();

  int first_rank() const { return first_rank_; }
  int local_ranks() const { return static_cast<int>(ranks_.size()); }
  const ProgramOptions& options() const { return options_; }
  const Graph& graph(int i) const { return *At(i).graph; }
  const Program& program(int i) const { return *At(i).program; }
  const std::vector<WeightUse>& uses(int i) const { return At(i).uses; }
  // Bytes of all ranks here: what weights take, what one token reads of them, buffers, and one page of the caches.
  int64_t weight_bytes() const;
  int64_t token_bytes() const;
  int64_t buffer_bytes() const;
  int64_t page_bytes(const KvTypes& types) const;
  Size recurrent_bytes(int64_t slots, int64_t snapshots) const;
  // Whether a sequence needs a slot: its graph has recurrent states.
  bool recurrent() const;

  // Starts the teams, each of which reads its weights and makes its caches. `group` must outlive the set. Throws as WeightStore and KvPool
  // do. Caches hold what all graphs beside it keep.
  void Load(RankGroup& group, const RankOptions& options, const WeightStore::Progress& progress);
  // The same where there is a model, once that is loaded, in one process.
  void LoadBeside();

  int64_t pages() const { return pages_; }
  int64_t snapshots() const { return recurrent() ? snapshots_ : 0; }
  KvPool& pool(int i) { return *At(i).pool; }
  RecurrentPool& recurrent_pool(int i) { return *At(i).recurrent; }
  ThreadTeam& team(int i) { return *At(i).team; }
  Executor& executor(int i) { return *At(i).executor; }
  const Executor& executor(int i) const { return *At(i).executor; }
  // Of the rank's collectives so far.
  const ExchangeCounts& exchanges(int i) const { return group_->local(i).counts(); }
  RankGroup& group() { return *group_; }
  // The position that a sequence of recurrent states can go back to without its tokens being taken in again.
  int64_t Checkpoint(int64_t slot) const;

  // Brings what is cached to an image of the whole model (exec/state_image.h), or takes it from one: of a page, or of a snapshot of recurrent
  // states. In the leading process only.
  enum class StateMove : char {
    kReadPage = 'p',
    kWritePage = 'P',
    kReadSnapshot = 's',
    kWriteSnapshot = 'S'
  };
  const StateImages& images() const { return *images_; }
  void MoveStates(StateMove move, int64_t index, std::span<std::byte> image);

  // Runs a batch on all ranks; bounds as Executor::Run(). Throws Failed where a rank has failed; the set can be used again. In the
  // leading process only.
  void Run(const Batch& batch);
  // Runs what the leading process runs, until it ends. In the others only.
  void Follow();

  // Results of the last run, by ids of the whole graph: [outputs, width].
  std::span<const float> Result(ValueId value) const;
  // The name of the first step, on any rank here, that met a number that is not finite in this row of the last batch; empty: none did.
  std::string Fault(int64_t row) const;

 private:
  struct Rank {
    const Graph* graph = nullptr;
    std::vector<WeightUse> uses;
    std::unique_ptr<Program> program;
    std::shared_ptr<ThreadTeam> team;
    std::unique_ptr<WeightStore> weights;
    std::shared_ptr<KvPool> pool;
    std::shared_ptr<RecurrentPool> recurrent;
    std::unique_ptr<Executor> executor;
  };
  struct StateRuns {
    std::vector<StateRun> page, recurrent;
  };
  // A result, and the first rank that has it.
  struct Kept {
    ValueId value;
    int rank;
  };

  const Rank& At(int i) const { return ranks_[static_cast<size_t>(i)]; }
  Rank& At(int i) { return ranks_[static_cast<size_t>(i)]; }
  bool Local(int rank) const { return rank >= first_rank_ && rank < first_rank_ + local_ranks(); }
  void FindKept();
  // What rank i keeps of a sequence for this graph and those beside it.
  std::vector<StateSpec> States(int i) const;
  bool Borrows(int i, const WeightUse& use) const;
  void LoadRank(int i, const RankOptions& options, const WeightStore::Progress& progress);
  void MakeExecutor(int i);
  // Runs on the ranks of this process.
  void RunHere(const Batch& batch);
  void RunPieces(const std::vector<Batch>& pieces);
  const std::vector<StateRun>& RunsOf(StateMove move, int rank) const;
  void MoveHere(StateMove move, int64_t index, std::span<std::byte> image);
  std::vector<std::byte> Packed(StateMove move, int process,
                                std::span<const std::byte> image) const;
  void Unpack(StateMove move, int process, std::span<const std::byte> packed,
              std::span<std::byte> image) const;
  void FollowStates(const std::string& message);
  int RankOf(ValueId value) const;
  // What other processes keep, for the leader.
  void BringResults(int64_t outputs);

  const ShardedGraph& sharded_;
  const GgufFile& file_;
  const int first_rank_;
  const ProgramOptions options_;
  RankSet* const model_;
  std::vector<const RankSet*> beside_;  // in the order in which they were made
  std::vector<Rank> ranks_;
  std::vector<Kept> kept_;
  int64_t pages_ = 0, snapshots_ = 0;
  std::optional<StateImages> images_;
  std::vector<StateRuns> state_runs_;  // of each rank of the mesh
  Isa isa_ = Isa::kPortable;
  bool trace_ = false;
  RankGroup* group_ = nullptr;
  std::shared_ptr<ThreadTeam> drivers_;  // member i drives the team of rank i

  // Of the last batch, where it ran in pieces or a result came from another process.
  std::map<ValueId, std::vector<float>> results_;
  bool in_pieces_ = false;
  std::vector<std::string> faults_;  // of each row
};

}  // namespace lockstep
