#include "engine/model.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/topology.h"
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

std::unique_ptr<ThreadTeam> MakeTeam(int threads) {
  const Topology topology = Topology::Detect();
  if (threads == 0) threads = topology.DefaultThreads();
  const auto cpus = topology.PlaceTeams({threads});
  return cpus[0].empty() ? std::make_unique<ThreadTeam>(threads)
                         : std::make_unique<ThreadTeam>(cpus[0]);
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
                         {"memory limit", options.memory_limit, 0, INT64_MAX}}) {
    if (row.value < row.least || row.value > row.most) {
      throw Refused("{}: expected {} to {}, found {}", row.name, row.least, row.most, row.value);
    }
  }
  return options;
}

double Gigabytes(Size bytes) { return static_cast<double>(bytes.value_or(UINT64_MAX)) / 1e9; }

}  // namespace

ProgramOptions ProgramOptionsFor(const Graph& graph, const LoadOptions& options) {
  ProgramOptions program;
  program.max_tokens = std::max(options.micro_batch, options.sequences);
  const int64_t rows_in_memory = kLogitBytes / (VocabOf(graph) * 4);
  program.max_outputs = std::min(std::max(rows_in_memory, options.sequences), program.max_tokens);
  program.hidden = options.hidden;
  return program;
}

Model::Model(const LoadOptions& options)
    : file_(GgufFile::Open(Checked(options).path)),
      tokenizer_(Tokenizer::FromGguf(file_)),
      isa_(BestIsa()) {
  const KvTypes types{&KvType(options.k_type), &KvType(options.v_type)};
  const ModelSource source(file_, {.context = options.context,
                                   .rotate_keys = Rotates(*types.k, options.kv_rotation),
                                   .rotate_values = Rotates(*types.v, options.kv_rotation)});
  trained_context_ = source.Count("context_length");
  graph_ = BuildGraph(source);
  if (vocab() != tokenizer_.size()) {
    Log(LogLevel::kDebug, "{}: {} tokens for {} rows of logits", file_.name(), tokenizer_.size(),
        vocab());
  }
  std::vector<WeightUse> uses = FindWeights(graph_, file_);
  int64_t weight_bytes = 0;
  for (const WeightUse& use : uses) {
    weight_bytes += use.bytes();
    bytes_per_token_ += static_cast<int64_t>(use.used() * static_cast<double>(use.bytes()));
  }
  program_ =
      std::make_unique<Program>(graph_, TakesCodes(uses), ProgramOptionsFor(graph_, options));
  const int64_t snapshots = options.snapshots < 0 ? 2 * options.sequences + 2 : options.snapshots;
  const Size recurrent_bytes = RecurrentPool::Bytes(graph_.states, options.sequences, snapshots);
  ChooseContext(options,
                weight_bytes + program_->arena_bytes() +
                    static_cast<int64_t>(recurrent_bytes.value_or(kMostBytes)),
                types);
  team_ = MakeTeam(options.threads);
  weights_ = std::make_unique<WeightStore>(std::move(uses), file_, *team_, options.progress);
  pool_ = std::make_unique<KvPool>(graph_.states, types,
                                   options.sequences * CeilDiv(context_, kPageTokens));
  recurrent_ = std::make_unique<RecurrentPool>(graph_.states, options.sequences, snapshots);
  executor_ =
      std::make_unique<Executor>(graph_, *program_, *weights_, *pool_, *recurrent_, *team_, KernelsFor(isa_));
}

int64_t Model::vocab() const { return VocabOf(graph_); }

void Model::ChooseContext(const LoadOptions& options, int64_t other_bytes, const KvTypes& types) {
  const Size page_bytes(static_cast<uint64_t>(KvPool::PageBytes(graph_.states, types)));
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
