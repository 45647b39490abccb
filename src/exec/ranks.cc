#include "exec/ranks.h"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "exec/batch_wire.h"

namespace lockstep {
namespace {

// What the leader broadcasts in front of a batch.
constexpr char kBatch = 'b';
constexpr char kEnd = 'e';

std::unique_ptr<ThreadTeam> MakeTeam(int threads, std::span<const int> cpus, int beside) {
  return cpus.empty() ? std::make_unique<ThreadTeam>(threads, beside)
                      : std::make_unique<ThreadTeam>(cpus, beside);
}

int64_t WidthOf(const Graph& graph, ValueId value) {
  const Shape& shape = graph.value(value).shape;
  return static_cast<int64_t>(shape.Count().value_or(0)) / shape[0].size;
}

}  // namespace

RankSet::RankSet(const ShardedGraph& sharded, const GgufFile& file, int first_rank, int local_ranks,
                 const ProgramOptions& options, RankSet* model)
    : sharded_(sharded),
      file_(file),
      first_rank_(first_rank),
      options_(options),
      model_(model),
      ranks_(static_cast<size_t>(local_ranks)) {
  const auto tensor = static_cast<size_t>(sharded.plan.mesh.tensor);
  for (int i = 0; i < local_ranks; ++i) {
    Rank& rank = At(i);
    rank.graph = &sharded.ranks[static_cast<size_t>(first_rank + i)];
    rank.uses = FindWeights(*rank.graph, file, model_ == nullptr ? &file : &model_->file_);
    const auto stage = static_cast<size_t>(sharded.plan.mesh.stage(first_rank + i));
    const std::vector<Demand> collectives =
        CollectiveDemand(std::span(sharded.ranks).subspan(stage * tensor, tensor), options);
    rank.program =
        std::make_unique<Program>(*rank.graph, TakesCodes(rank.uses), options, collectives);
  }
  FindKept();
  if (model_ != nullptr) model_->beside_.push_back(this);
}

RankSet::~RankSet() {
  if (group_ == nullptr || model_ != nullptr || group_->processes() == 1 || !group_->leads())
    return;
  std::string end(1, kEnd);
  group_->Broadcast(end);
}

void RankSet::FindKept() {
  for (int rank = 0; rank < std::ssize(sharded_.ranks); ++rank) {
    for (ValueId value : KeptValues(sharded_.ranks[static_cast<size_t>(rank)], options_)) {
      if (std::ranges::find(kept_, value, &Kept::value) == kept_.end())
        kept_.push_back({value, rank});
    }
  }
}

int64_t RankSet::weight_bytes() const {
  int64_t bytes = 0;
  for (int i = 0; i < local_ranks(); ++i) {
    for (const WeightUse& use : At(i).uses) bytes += Borrows(i, use) ? 0 : use.bytes();
  }
  return bytes;
}

int64_t RankSet::token_bytes() const {
  double bytes = 0;
  for (const Rank& rank : ranks_) {
    for (const WeightUse& use : rank.uses) bytes += use.used() * static_cast<double>(use.bytes());
  }
  return static_cast<int64_t>(bytes);
}

int64_t RankSet::buffer_bytes() const {
  int64_t bytes = 0;
  for (const Rank& rank : ranks_) bytes += rank.program->arena_bytes();
  return bytes;
}

int64_t RankSet::page_bytes(const KvTypes& types) const {
  int64_t bytes = 0;
  for (int i = 0; i < local_ranks(); ++i) bytes += KvPool::PageBytes(States(i), types);
  return bytes;
}

Size RankSet::recurrent_bytes(int64_t slots, int64_t snapshots) const {
  Size bytes;
  for (int i = 0; i < local_ranks(); ++i)
    bytes = bytes + RecurrentPool::Bytes(States(i), slots, snapshots);
  return bytes;
}

bool RankSet::recurrent() const {
  return std::ranges::any_of(sharded_.ranks, [](const Graph& graph) {
    return std::ranges::any_of(graph.states, [](const StateSpec& state) {
      return state.kind == StateSpec::Kind::kRecurrent;
    });
  });
}

int64_t RankSet::Checkpoint(int64_t slot) const {
  for (const Rank& rank : ranks_) {
    if (!rank.recurrent->empty()) return rank.recurrent->slot(slot).checkpoint;
  }
  // The states are all in other processes, where how far they go back is not known.
  return INT64_MAX;
}

std::vector<StateSpec> RankSet::States(int i) const {
  std::vector<StateSpec> states = At(i).graph->states;
  for (const RankSet* set : beside_) {
    for (const StateSpec& state : set->At(i).graph->states) {
      if (std::ranges::find(states, state.name, &StateSpec::name) == states.end())
        states.push_back(state);
    }
  }
  return states;
}

bool RankSet::Borrows(int i, const WeightUse& use) const {
  if (model_ == nullptr) return false;
  return std::ranges::any_of(model_->At(i).uses,
                             [&](const WeightUse& other) { return use.PacksLike(other); });
}

void RankSet::LoadBeside() {
  if (model_->group_->processes() > 1) {
    throw Refused("{}: a graph beside a model: expected one process, found {}", At(0).graph->name,
                  model_->group_->processes());
  }
  pages_ = model_->pages_, snapshots_ = model_->snapshots_;
  isa_ = model_->isa_;
  drivers_ = model_->drivers_;
  group_ = model_->group_;
  drivers_->Run([&](int i) {
    Rank& rank = At(i);
    const Rank& of_model = model_->At(i);
    std::vector<const WeightStore*> lenders = {of_model.weights.get()};
    for (const RankSet* set : model_->beside_) {
      if (set != this && set->At(i).weights) lenders.push_back(set->At(i).weights.get());
    }
    rank.team = of_model.team, rank.pool = of_model.pool, rank.recurrent = of_model.recurrent;
    rank.weights = std::make_unique<WeightStore>(rank.uses, file_, *rank.team, nullptr, lenders);
    MakeExecutor(i);
  });
}

void RankSet::MakeExecutor(int i) {
  Rank& rank = At(i);
  rank.executor =
      std::make_unique<Executor>(*rank.graph, *rank.program, *rank.weights, *rank.pool,
                                 *rank.recurrent, *rank.team, KernelsFor(isa_), group_->local(i));
  rank.executor->SetTracing(trace_);
}

void RankSet::Load(RankGroup& group, const RankOptions& options,
                   const WeightStore::Progress& progress) {
  pages_ = options.pages;
  snapshots_ = options.snapshots;
  isa_ = options.isa;
  trace_ = options.trace;
  images_.emplace(sharded_.states, options.kv);
  for (const Graph& rank : sharded_.ranks)
    state_runs_.push_back({images_->PageRuns(rank), images_->RecurrentRuns(rank)});
  // Ranks read at the same time; who listens hears one after the other.
  const int64_t all = weight_bytes();
  std::mutex mutex;
  std::vector<int64_t> done(ranks_.size());
  std::vector<int> first_cpus;
  for (const auto& cpus : options.cpus) {
    if (!cpus.empty()) first_cpus.push_back(cpus[0]);
  }
  if (std::ssize(first_cpus) != local_ranks()) first_cpus.clear();
  const int threads = std::accumulate(options.threads.begin(), options.threads.end(), 0);
  drivers_ = MakeTeam(local_ranks(), first_cpus, threads - local_ranks());
  group_ = &group;
  drivers_->Run([&](int i) {
    LoadRank(i, options, [&, i](int64_t bytes, int64_t) {
      std::lock_guard lock(mutex);
      done[static_cast<size_t>(i)] = bytes;
      if (progress) progress(std::accumulate(done.begin(), done.end(), int64_t{0}), all);
    });
  });
}

void RankSet::LoadRank(int i, const RankOptions& options, const WeightStore::Progress& progress) {
  const int threads = options.threads[static_cast<size_t>(i)];
  const int beside = std::accumulate(options.threads.begin(), options.threads.end(), -threads);
  Rank& rank = At(i);
  rank.team = MakeTeam(threads, options.cpus[static_cast<size_t>(i)], beside);
  rank.weights = std::make_unique<WeightStore>(rank.uses, file_, *rank.team, progress);
  const std::vector<StateSpec> states = States(i);
  rank.pool = std::make_unique<KvPool>(states, options.kv, options.pages);
  rank.recurrent = std::make_unique<RecurrentPool>(states, options.slots, options.snapshots);
  MakeExecutor(i);
}

void RankSet::Run(const Batch& batch) {
  if (group_->processes() > 1) {
    std::string bytes = kBatch + EncodeBatch(batch);
    group_->Broadcast(bytes);
  }
  RunHere(batch);
}

void RankSet::Follow() {
  for (;;) {
    std::string bytes;
    group_->Broadcast(bytes);
    if (bytes.empty() || bytes[0] == kEnd) return;
    if (bytes[0] == kBatch) {
      RunHere(DecodeBatch(bytes.substr(1)).batch);
    } else {
      FollowStates(bytes);
    }
  }
}

void RankSet::RunHere(const Batch& batch) {
  // Where stages follow each other, one works on a piece while the next works on the piece before.
  const int32_t stages = sharded_.plan.mesh.pipeline;
  // Beside a model there are too few layers for that.
  const bool whole = stages == 1 || model_ != nullptr;
  const std::vector<Batch> pieces = whole ? std::vector<Batch>{} : CutBatch(batch, stages);
  results_.clear();
  in_pieces_ = pieces.size() > 1;
  if (in_pieces_) faults_.assign(batch.tokens.size(), "");
  try {
    if (in_pieces_) {
      RunPieces(pieces);
    } else {
      drivers_->Run([&](int i) { At(i).executor->Run(batch); });
    }
  } catch (...) {
    group_->Restart();
    throw;
  }
  BringResults(std::ssize(batch.outputs));
}

void RankSet::RunPieces(const std::vector<Batch>& pieces) {
  // A rank has its results to itself: a value is kept by one.
  std::map<ValueId, std::vector<float>> results;
  for (const Kept& kept : kept_) {
    if (Local(kept.rank)) results[kept.value];
  }
  std::mutex mutex;
  drivers_->Run([&](int i) {
    int64_t first = 0;
    for (const Batch& piece : pieces) {
      const Executor& executor = *At(i).executor;
      At(i).executor->Run(piece);
      for (auto& [value, rows] : results) {
        if (RankOf(value) != first_rank_ + i) continue;
        const std::span<const float> found = executor.Result(value);
        std::ranges::copy(found, std::back_inserter(rows));
      }
      std::lock_guard lock(mutex);
      for (int64_t row = 0; row < std::ssize(piece.tokens); ++row) {
        const Step* step = executor.Fault(row);
        std::string& fault = faults_[static_cast<size_t>(first + row)];
        if (step != nullptr && fault.empty()) fault = step->name;
      }
      first += std::ssize(piece.tokens);
    }
  });
  results_ = std::move(results);
}

int RankSet::RankOf(ValueId value) const {
  return std::ranges::find(kept_, value, &Kept::value)->rank;
}

void RankSet::BringResults(int64_t outputs) {
  if (group_->processes() == 1) return;
  for (const Kept& kept : kept_) {
    const int from = group_->process_of(kept.rank);
    if (from == 0 || (!group_->leads() && group_->process() != from)) continue;
    const auto size = static_cast<size_t>(
        outputs * WidthOf(sharded_.ranks[static_cast<size_t>(kept.rank)], kept.value));
    std::vector<float>& rows = results_[kept.value];
    if (!group_->leads() && rows.empty()) {
      const std::span<const float> mine = Result(kept.value);
      rows.assign(mine.begin(), mine.end());
    }
    rows.resize(size);
    group_->SendToLeader(from, std::as_writable_bytes(std::span(rows)));
  }
}

std::span<const float> RankSet::Result(ValueId value) const {
  if (auto at = results_.find(value); at != results_.end() && !at->second.empty())
    return at->second;
  for (const Rank& rank : ranks_) {
    if (rank.program->result(value) >= 0) return rank.executor->Result(value);
  }
  return {};
}

std::string RankSet::Fault(int64_t row) const {
  if (in_pieces_) return faults_[static_cast<size_t>(row)];
  // Values are numbered in the order in which they are computed, so the first is the same on every number of ranks.
  const Step* first = nullptr;
  for (const Rank& rank : ranks_) {
    const Step* step = rank.executor->Fault(row);
    if (step != nullptr && (first == nullptr || step->in_values[0] < first->in_values[0]))
      first = step;
  }
  return first == nullptr ? "" : first->name;
}

}  // namespace lockstep
