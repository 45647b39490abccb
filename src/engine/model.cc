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
// Bytes of logits a batch may ask for at once.
constexpr int64_t kLogitBytes = int64_t{64} << 20;

const Format& KvType(const std::string& name) {
  const Format* format = FindFormat(name);
  if (format == nullptr || !IsKvType(*format)) {
    throw Refused("cache type: expected one of f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl, found \"{}\"", Printable(name));
  }
  return *format;
}

std::unique_ptr<ThreadTeam> MakeTeam(int threads) {
  const Topology topology = Topology::Detect();
  if (threads == 0) threads = topology.DefaultThreads();
  const auto cpus = topology.PlaceTeams({threads});
  return cpus[0].empty() ? std::make_unique<ThreadTeam>(threads) : std::make_unique<ThreadTeam>(cpus[0]);
}

double Gigabytes(int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

Model::Model(const LoadOptions& options)
    : file_(GgufFile::Open(options.path)), tokenizer_(Tokenizer::FromGguf(file_)), isa_(BestIsa()) {
  const KvTypes types{&KvType(options.k_type), &KvType(options.v_type)};
  const ModelSource source(file_, {options.context});
  trained_context_ = source.Count("context_length");
  graph_ = BuildGraph(source);
  if (vocab() != tokenizer_.size()) {
    Log(LogLevel::kDebug, "{}: {} tokens for {} rows of logits", file_.name(), tokenizer_.size(), vocab());
  }
  std::vector<WeightUse> uses = FindWeights(graph_, file_);
  int64_t weight_bytes = 0;
  for (const WeightUse& use : uses) {
    weight_bytes += use.bytes();
    if (use.kind == OperandKind::kMatrix) bytes_per_token_ += use.bytes();
  }
  ProgramOptions program_options;
  program_options.max_tokens = options.micro_batch;
  program_options.max_outputs = std::clamp<int64_t>(kLogitBytes / (vocab() * 4), options.sequences, options.micro_batch);
  program_options.max_outputs = std::max(program_options.max_outputs, std::min<int64_t>(options.sequences, options.micro_batch));
  program_options.hidden = options.hidden;
  auto quantized = [&](ValueId weight) {
    return std::ranges::any_of(uses, [&](const WeightUse& use) { return use.value == weight && use.format->group != 0; });
  };
  program_ = std::make_unique<Program>(graph_, quantized, program_options);
  ChooseContext(options, weight_bytes + program_->arena_bytes(), types);
  team_ = MakeTeam(options.threads);
  weights_ = std::make_unique<WeightStore>(std::move(uses), file_, *team_, options.progress);
  pool_ = std::make_unique<KvPool>(graph_.states, types, options.sequences * CeilDiv(context_, kPageTokens));
  executor_ = std::make_unique<Executor>(graph_, *program_, *weights_, *pool_, *team_, KernelsFor(isa_));
}

int64_t Model::vocab() const {
  const Shape& shape = graph_.value(graph_.logits).shape;
  return shape[shape.rank() - 1].size;
}

void Model::ChooseContext(const LoadOptions& options, int64_t other_bytes, const KvTypes& types) {
  const int64_t page_bytes = KvPool::PageBytes(graph_.states, types);
  const int64_t available = static_cast<int64_t>(AvailableMemoryBytes());
  auto pages_of = [&](int64_t context) { return options.sequences * CeilDiv(context, kPageTokens); };
  auto needed = [&](int64_t context) {
    return Size(static_cast<uint64_t>(other_bytes + kReserveBytes)) +
           Size(static_cast<uint64_t>(pages_of(context))) * Size(static_cast<uint64_t>(page_bytes));
  };
  context_ = options.context != 0 ? options.context : trained_context_;
  if (available == 0 || needed(context_).fits(static_cast<uint64_t>(available))) return;
  // Half of what is left, so that other programs live too.
  const int64_t left = (available - other_bytes - kReserveBytes) / 2;
  const int64_t fitting = left / page_bytes / options.sequences * kPageTokens;
  if (options.context == 0 && fitting >= std::min<int64_t>(trained_context_, 1024)) {
    context_ = std::min(fitting, trained_context_);
    Log(LogLevel::kWarning, "context: {} of the model's {} positions, which is what memory has room for", context_, trained_context_);
    return;
  }
  throw Refused("{}: expected {:.2f} GB of free memory ({:.2f} GB for weights and buffers, {:.2f} GB for {} x {} positions), found {:.2f} GB",
                Printable(options.path, 4096), Gigabytes(static_cast<int64_t>(needed(context_).value_or(UINT64_MAX / 2))),
                Gigabytes(other_bytes + kReserveBytes), Gigabytes(pages_of(context_) * page_bytes), options.sequences, context_,
                Gigabytes(available));
}

}  // namespace lockstep
