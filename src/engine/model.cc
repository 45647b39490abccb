#include "engine/model.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/topology.h"
#include "engine/build_identity.h"
#include "engine/sha256.h"
#include "models/models.h"

namespace lockstep {
namespace {

// Kept free beside a model: program, tokenizer, the system's own needs.
constexpr int64_t kReserveBytes = int64_t{200} << 20;
// More than any machine has, and far from overflow.
constexpr uint64_t kMostBytes = uint64_t{1} << 60;
// Bytes of logits a batch may ask for at once.
constexpr int64_t kLogitBytes = int64_t{64} << 20;

const Format& KvType(const std::string& name) {
  const Format* format = FindFormat(name);
  if (format == nullptr || !IsKvType(*format)) {
    throw Refused(
        "cache type: expected one of f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl, found \"{}\"",
        Printable(name));
  }
  return *format;
}

// Whether heads are rotated before they are cached in this type.
bool Rotates(const Format& type, LoadOptions::KvRotation rotation) {
  using enum LoadOptions::KvRotation;
  if (rotation == kAuto) return type.block > 1;
  return rotation == kOn;
}

int64_t VocabOf(const Graph& graph) {
  const Shape& shape = graph.value(graph.logits).shape;
  return shape[shape.rank() - 1].size;
}

// Limits keep sums of sizes within 64 bits.
const LoadOptions& Checked(const LoadOptions& options) {
  struct Row {
    std::string_view name;
    int64_t value, least, most;
  };
  for (const Row& row : {Row{"context", options.context, 0, INT32_MAX},
                         {"micro-batch", options.micro_batch, 1, int64_t{1} << 20},
                         {"sequences", options.sequences, 1, int64_t{1} << 20},
                         {"snapshots", options.snapshots, -1, int64_t{1} << 20},
                         {"threads", options.threads, 0, 4096},
                         {"ranks", options.ranks, 1, kMostRanks},
                         {"memory limit", options.memory_limit, 0, INT64_MAX}}) {
    if (row.value < row.least || row.value > row.most) {
      throw Refused("{}: expected {} to {}, found {}", row.name, row.least, row.most, row.value);
    }
  }
  return options;
}

double Gigabytes(Size bytes) { return static_cast<double>(bytes.value_or(UINT64_MAX)) / 1e9; }

}  // namespace

int64_t DraftModel::hidden_width() const {
  const Shape& shape = graph->graph.value(graph->graph.final_hidden).shape;
  return shape[shape.rank() - 1].size;
}

ProgramOptions ProgramOptionsFor(const Graph& graph, const LoadOptions& options) {
  ProgramOptions program;
  program.max_tokens = std::max(options.micro_batch, options.sequences);
  const int64_t rows_in_memory = kLogitBytes / (VocabOf(graph) * 4);
  program.max_outputs =
      std::min(std::max({rows_in_memory, options.sequences, options.outputs}), program.max_tokens);
  program.hidden = options.hidden;
  if (options.next_token) program.kept = {graph.final_hidden};
  return program;
}

KvTypes KvTypesFor(const LoadOptions& options) {
  return {&KvType(options.k_type), &KvType(options.v_type)};
}

ModelOptions GraphOptionsFor(const LoadOptions& options) {
  const KvTypes types = KvTypesFor(options);
  return {.context = options.context,
          .rotate_keys = Rotates(*types.k, options.kv_rotation),
          .rotate_values = Rotates(*types.v, options.kv_rotation)};
}

std::string FileIdentity(const GgufFile& file) {
  Sha256 sha;
  for (size_t i = 0; i < file.shard_count(); ++i) sha.Add(file.head(i));
  const uint64_t bytes = file.file_bytes();
  sha.Add(std::as_bytes(std::span(&bytes, 1)));
  return sha.Hex();
}

Model::Model(const LoadOptions& options) : isa_(options.isa ? *options.isa : BestIsa()) {
  Connect(Checked(options));
  Together([&] { Open(options); });
  ExpectAlike(options);
  Together([&] {
    MakePrograms(options);
    ChooseContext(options);
  });
  // The cache of a sequence has one length everywhere.
  for (const std::string& text : group_->Collect(std::to_string(context_)))
    context_ = std::min<int64_t>(context_, std::atoll(text.c_str()));
  Together([&] {
    if (options.accept && leads()) options.accept(*this);
    Load(options);
  });
}

void Model::Connect(const LoadOptions& options) {
  const Topology topology = Topology::Detect();
  // Processes that mpirun has not bound to CPUs of their own share those of the host.
  const int beside = ProcessesOnThisHost();
  const bool shared =
      beside > 1 && std::ssize(topology.cpus) * beside > sysconf(_SC_NPROCESSORS_ONLN);
  int threads = options.threads;
  if (threads == 0) threads = topology.DefaultThreads() / (shared ? beside : 1);
  threads = std::max(threads, options.ranks);
  for (int i = 0; i < options.ranks; ++i)
    threads_.push_back(static_cast<int>(ShareOf(threads, 1, i, options.ranks).size()));
  cpus_ = shared ? std::vector<std::vector<int>>(threads_.size()) : topology.PlaceTeams(threads_);
  group_ = ConnectRanks({.local_ranks = options.ranks,
                         .threads = threads_,
                         .lost_after_seconds = options.lost_after_seconds});
}

void Model::Together(FunctionRef<void()> part) const {
  std::string mine;
  std::exception_ptr error;
  try {
    part();
  } catch (const std::exception& caught) {
    mine = caught.what();
    error = std::current_exception();
  }
  const std::vector<std::string> all = group_->Collect(mine);
  if (error) std::rethrow_exception(error);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].empty()) throw Refused("process {}: {}", i, all[i]);
  }
}

void Model::Open(const LoadOptions& options) {
  file_.emplace(GgufFile::Open(options.path));
  ExpectModel(ModelSource(*file_, {}));
  tokenizer_.emplace(Tokenizer::FromGguf(*file_));
  kv_types_ = KvTypesFor(options);
  graph_options_ = GraphOptionsFor(options);
  const ModelSource source(*file_, graph_options_);
  trained_context_ = source.Count("context_length");
  graph_ = BuildGraph(source);
  if (vocab() != tokenizer_->size()) {
    Log(LogLevel::kDebug, "{}: {} tokens for {} rows of logits", file_->name(), tokenizer_->size(),
        vocab());
  }
  OpenDraft(options);
}

void Model::ExpectAlike(const LoadOptions& options) const {
  if (group_->processes() == 1) return;
  struct Row {
    std::string_view what;
    std::string mine;
  };
  const Row rows[] = {
      {"file", FileIdentity(*file_)},
      {"build", BuildIdentity()},
      {"--ctx-size", std::to_string(options.context)},
      {"--ubatch-size", std::to_string(options.micro_batch)},
      {"--parallel", std::to_string(options.sequences)},
      {"--cache-type-k", std::string(kv_types_.k->name)},
      {"--cache-type-v", std::string(kv_types_.v->name)},
      {"--kv-rotate",
       fmt::format("{} {}", graph_options_.rotate_keys, graph_options_.rotate_values)},
      {"--split-mode", std::string(SplitModeName(options.split))},
      {"--tensor-split", fmt::format("{}", fmt::join(options.proportions, ","))},
      {"--expert-split", std::string(ExpertSplitName(options.experts))},
      {"snapshots", std::to_string(options.snapshots)},
      {"results", fmt::format("{} {} {}", options.outputs, options.hidden, options.next_token)}};
  for (const Row& row : rows) {
    const std::vector<std::string> all = group_->Collect(row.mine);
    for (size_t i = 1; i < all.size(); ++i) {
      if (all[i] == all[0]) continue;
      throw Refused("{} of process {}: expected that of process 0, {}, found {}", row.what, i,
                    Printable(all[0]), Printable(all[i]));
    }
  }
}

void Model::OpenDraft(const LoadOptions& options) {
  if (options.draft.empty()) return;
  if (group_->ranks() != 1) {
    throw Refused("{}: a draft: expected 1 rank, found {}", Printable(options.draft, 4096),
                  group_->ranks());
  }
  draft_ = std::make_unique<DraftModel>(GgufFile::Open(options.draft));
  const ModelSource target(*file_, graph_options_), source(draft_->file, graph_options_);
  draft_->graphs = BuildDraft(source, {target, graph_});
}

void Model::MakePrograms(const LoadOptions& options) {
  sharded_ = Sharded(graph_, *file_, options);
  ProgramOptions program = ProgramOptionsFor(graph_, options);
  if (draft_)
    program.kept.insert(program.kept.end(), draft_->graphs.seen.begin(), draft_->graphs.seen.end());
  ranks_ =
      std::make_unique<RankSet>(sharded_, *file_, group_->first_rank(), options.ranks, program);
  snapshots_ = options.snapshots < 0 ? 2 * options.sequences + 2 : options.snapshots;
  AddSideGraphs(options);
}

void Model::AddSideGraphs(const LoadOptions& options) {
  if (options.next_token) {
    Graph block = BuildNextTokenGraph(ModelSource(*file_, graph_options_), graph_);
    const ProgramOptions program = ProgramOptionsFor(block, options);
    next_token_ = Beside(std::move(block), *file_, program, options);
  }
  if (!draft_) return;
  DraftGraphs& graphs = draft_->graphs;
  if (graphs.context) {
    const ProgramOptions program = {
        .max_tokens = ranks_->options().max_tokens, .max_outputs = 1, .logits = false};
    draft_->context = Beside(std::move(*graphs.context), draft_->file, program, options);
  }
  const int64_t rows = std::max<int64_t>(graphs.block, 1);
  const ProgramOptions program = {
      .max_tokens = rows, .max_outputs = rows, .kept = {graphs.graph.final_hidden}};
  draft_->graph = Beside(std::move(graphs.graph), draft_->file, program, options);
}

ShardedGraph Model::Sharded(const Graph& graph, const GgufFile& file,
                            const LoadOptions& options) const {
  const Plan plan = MakePlan(options.split, group_->ranks(), options.proportions, options.experts);
  return Shard(graph, plan, [&](const WeightSource& source) -> const Format& {
    return WeightFormat(source.of_model ? *file_ : file, source);
  });
}

std::unique_ptr<SideGraph> Model::Beside(Graph graph, const GgufFile& file,
                                         const ProgramOptions& program,
                                         const LoadOptions& options) {
  auto side = std::make_unique<SideGraph>();
  side->graph = std::move(graph);
  side->sharded = Sharded(side->graph, file, options);
  side->ranks = std::make_unique<RankSet>(side->sharded, file, group_->first_rank(), options.ranks,
                                          program, ranks_.get());
  return side;
}

std::vector<SideGraph*> Model::side_graphs() const {
  std::vector<SideGraph*> all = {next_token_.get()};
  if (draft_) all.insert(all.end(), {draft_->context.get(), draft_->graph.get()});
  std::erase(all, nullptr);
  return all;
}

void Model::Load(const LoadOptions& options) {
  ranks_->Load(*group_,
               {.threads = threads_,
                .cpus = cpus_,
                .kv = kv_types_,
                .pages = options.sequences * CeilDiv(context_, kPageTokens),
                .slots = options.sequences,
                .snapshots = snapshots_,
                .isa = isa_,
                .trace = options.trace},
               options.progress);
  for (SideGraph* side : side_graphs()) side->ranks->LoadBeside();
}

int Model::threads() const { return std::accumulate(threads_.begin(), threads_.end(), 0); }

ThreadTeam& Model::team() {
  if (ranks_->local_ranks() == 1) return ranks_->team(0);
  if (!all_threads_) {
    std::vector<int> cpus;
    for (const auto& of_rank : cpus_) cpus.insert(cpus.end(), of_rank.begin(), of_rank.end());
    all_threads_ = std::ssize(cpus) == threads() ? std::make_unique<ThreadTeam>(cpus)
                                                 : std::make_unique<ThreadTeam>(threads());
  }
  return *all_threads_;
}

int64_t Model::vocab() const { return VocabOf(graph_); }

void Model::ChooseContext(const LoadOptions& options) {
  const Size page_bytes(static_cast<uint64_t>(ranks_->page_bytes(kv_types_)));
  int64_t beside = 0;
  for (const SideGraph* side : side_graphs())
    beside += side->ranks->weight_bytes() + side->ranks->buffer_bytes();
  const int64_t other_bytes =
      ranks_->weight_bytes() + ranks_->buffer_bytes() + beside +
      static_cast<int64_t>(
          ranks_->recurrent_bytes(options.sequences, snapshots_).value_or(kMostBytes));
  const int64_t available = options.memory_limit != 0
                                ? options.memory_limit
                                : static_cast<int64_t>(AvailableMemoryBytes());
  auto cache_bytes = [&](int64_t context) {
    return Size(static_cast<uint64_t>(options.sequences * CeilDiv(context, kPageTokens))) *
           page_bytes;
  };
  const Size other(static_cast<uint64_t>(other_bytes + kReserveBytes));
  context_ = options.context != 0 ? options.context : trained_context_;
  if (context_ > trained_context_) {
    Log(LogLevel::kWarning,
        "context: {} positions, more than the {} that the model was trained for", context_,
        trained_context_);
  }
  if (available == 0 || (other + cache_bytes(context_)).fits(static_cast<uint64_t>(available)))
    return;
  if (options.context == 0) {
    // Half of what is left, so that other programs live too.
    const int64_t left = (available - other_bytes - kReserveBytes) / 2;
    const auto page = static_cast<int64_t>(page_bytes.value_or(INT64_MAX));
    const int64_t fitting = left / std::max<int64_t>(page, 1) / options.sequences * kPageTokens;
    if (fitting >= std::min<int64_t>(trained_context_, 1024)) {
      context_ = std::min(fitting, trained_context_);
      Log(LogLevel::kWarning,
          "context: {} of the model's {} positions, which is what memory has room for", context_,
          trained_context_);
      return;
    }
  }
  throw Refused(
      "{}: expected {:.2f} GB of free memory ({:.2f} GB for weights and buffers, {:.2f} GB for {} "
      "x {} positions), found {:.2f} GB",
      Printable(options.path, 4096), Gigabytes(other + cache_bytes(context_)), Gigabytes(other),
      Gigabytes(cache_bytes(context_)), options.sequences, context_,
      Gigabytes(static_cast<uint64_t>(available)));
}

}  // namespace lockstep
