#include "engine/planning.h"

#include <map>

#include "models/models.h"

namespace lockstep {

std::vector<RankLoad> PlannedRun::loads() const {
  std::vector<RankLoad> loads;
  for (const RankHoldings& rank : ranks) loads.push_back(rank.load);
  return loads;
}

PlannedModel::PlannedModel(const LoadOptions& options)
    : options_(options), file_(GgufFile::Open(options.path)), kv_types_(KvTypesFor(options)) {
  const ModelSource source(file_, GraphOptionsFor(options));
  context_ = options.context != 0 ? options.context : source.Count("context_length");
  graph_ = BuildGraph(source);
}

PlannedRun PlannedModel::Cut(const Plan& plan) const {
  PlannedRun run;
  run.sharded = Shard(graph_, plan, [&](const WeightSource& source) -> const Format& {
    return WeightFormat(file_, source);
  });
  for (int32_t rank = 0; rank < plan.mesh.ranks(); ++rank)
    run.ranks.push_back(Holdings(run.sharded, rank));
  return run;
}

RankHoldings PlannedModel::Holdings(const ShardedGraph& sharded, int32_t rank) const {
  const RankSet set(sharded, file_, rank, 1, ProgramOptionsFor(graph_, options_));
  RankHoldings holdings;
  holdings.stage = sharded.plan.mesh.stage(rank);
  holdings.weights = set.weight_bytes();
  holdings.page = set.page_bytes(kv_types_);
  holdings.states = static_cast<int64_t>(set.recurrent_bytes(1, 0).value_or(0));
  holdings.buffers = set.buffer_bytes();
  holdings.load = Load(set);
  holdings.load.barriers = static_cast<double>(set.program(0).barriers());
  holdings.load.position_bytes = static_cast<double>(holdings.page) / kPageTokens;
  return holdings;
}

namespace {

// Experts of each stack that a rank has.
std::map<ValueId, int64_t> OwnExperts(const RankSet& rank) {
  std::map<ValueId, int64_t> own;
  for (const WeightUse& use : rank.uses(0)) {
    if (use.kind == OperandKind::kExperts) own[use.value] += use.experts;
  }
  return own;
}

// How often the rank with the most of a token's experts reads an expert, above the average of its own. Others are taken to have as many.
double AboveAverage(int64_t own, const WeightUse& use) {
  const int64_t all = use.experts_of_model;
  if (own == 0 || own == all) return 0;
  std::vector<int64_t> owned(static_cast<size_t>(all / own), own);
  if (all % own != 0) owned.push_back(all % own);
  return ExpectedMost(owned, use.used_experts) / static_cast<double>(own) - use.used();
}

}  // namespace

RankLoad PlannedModel::Load(const RankSet& rank) const {
  const Shape& logits = graph_.value(graph_.logits).shape;
  const auto whole_values = std::ssize(graph_.values);
  const std::map<ValueId, int64_t> own = OwnExperts(rank);
  RankLoad load;
  for (const WeightUse& use : rank.uses(0)) {
    const double share = use.used();
    if (share == 0) continue;
    const auto bytes = static_cast<double>(use.bytes());
    load.weight_bytes += bytes;
    load.token_bytes += share * bytes;
    const bool head =
        use.value < whole_values && graph_.value(use.value).shape[0].size == logits[1].size;
    (head ? load.output_ops : load.token_ops) += share * use.ops();
    if (use.kind != OperandKind::kExperts) continue;
    const double above = AboveAverage(own.at(use.value), use);
    load.most_bytes += above * bytes;
    load.most_ops += above * use.ops();
  }
  return load;
}

}  // namespace lockstep
