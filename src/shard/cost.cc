#include "shard/cost.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace lockstep {
namespace {

// The stage whose ranks wait for it.
int32_t StageOf(const Collective& collective, const Mesh& mesh) {
  const int32_t stage = collective.stage(mesh);
  return collective.kind == Collective::Kind::kSend ? std::min(stage + 1, mesh.pipeline - 1)
                                                    : stage;
}

// Messages that follow each other in a collective.
int Rounds(const Collective& collective, const Mesh& mesh) {
  if (collective.kind == Collective::Kind::kSend) return 1;
  return std::bit_width(static_cast<uint32_t>(mesh.tensor - 1));
}

// The slower of reading and multiplying on one rank, and its barriers.
Cost Work(double bytes, double ops, const RankLoad& load, const RankSpeed& speed) {
  const double memory = bytes / speed.bytes_per_s, compute = ops / speed.ops_per_s;
  Cost cost = memory >= compute ? Cost{.memory = memory} : Cost{.compute = compute};
  cost.barriers = load.barriers * speed.barrier_seconds;
  return cost;
}

void Add(Cost& to, const Cost& cost) {
  to.memory += cost.memory;
  to.compute += cost.compute;
  to.exchange += cost.exchange;
  to.barriers += cost.barriers;
}

// work(rank): what a rank of the stage does. rows: of each collective.
template <typename F>
std::vector<Cost> StageCosts(const ShardedGraph& sharded, const RankSpeed& speed, double rows,
                             F work) {
  const Mesh& mesh = sharded.plan.mesh;
  std::vector<Cost> stages(static_cast<size_t>(mesh.pipeline));
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    Cost& stage = stages[static_cast<size_t>(mesh.stage(rank))];
    const Cost cost = work(static_cast<size_t>(rank));
    if (cost.seconds() > stage.seconds()) stage = cost;
  }
  for (const Collective& collective : sharded.collectives) {
    // Results are gathered for the last row alone.
    const double count = collective.layer < 0 ? 1 : rows;
    stages[static_cast<size_t>(StageOf(collective, mesh))].exchange +=
        Rounds(collective, mesh) * speed.collective_seconds +
        count * static_cast<double>(collective.most_received()) / speed.link_bytes_per_s;
  }
  return stages;
}

// n choose 0 .. most.
std::vector<long double> Binomials(int64_t n, int64_t most) {
  std::vector<long double> choose = {1};
  for (int64_t k = 1; k <= most; ++k)
    choose.push_back(choose.back() * static_cast<long double>(n - k + 1) /
                     static_cast<long double>(k));
  return choose;
}

// Ways to choose `used` experts so that no rank has more than `most` of them.
long double Ways(std::span<const int64_t> owned, int64_t used, int64_t most) {
  std::vector<long double> ways(static_cast<size_t>(used) + 1);
  ways[0] = 1;
  for (int64_t own : owned) {
    const std::vector<long double> choose = Binomials(own, std::min(own, most));
    for (size_t chosen = ways.size(); chosen-- > 0;) {
      long double all = 0;
      for (size_t here = 0; here < choose.size() && here <= chosen; ++here)
        all += choose[here] * ways[chosen - here];
      ways[chosen] = all;
    }
  }
  return ways.back();
}

}  // namespace

double ExpectedMost(std::span<const int64_t> owned, int64_t used) {
  const int64_t all = std::accumulate(owned.begin(), owned.end(), int64_t{0});
  if (used > kMostCountedExperts || used > all)
    return static_cast<double>(used * std::ranges::max(owned)) / static_cast<double>(all);
  // The mean is the sum over m of the chance that the most is above m.
  const long double every = Binomials(all, used).back();
  long double expected = 0;
  for (int64_t most = 0; most < used; ++most) expected += 1 - Ways(owned, used, most) / every;
  return static_cast<double>(expected);
}

Cost DecodeCost(const ShardedGraph& sharded, const std::vector<RankLoad>& loads,
                const RankSpeed& speed, int64_t depth) {
  Cost all;
  for (const Cost& stage : StageCosts(sharded, speed, 1, [&](size_t rank) {
         const RankLoad& load = loads[rank];
         const double positions = load.position_bytes * static_cast<double>(depth);
         return Work(load.token_bytes + load.most_bytes + positions,
                     load.token_ops + load.most_ops + load.output_ops, load, speed);
       }))
    Add(all, stage);
  return all;
}

Cost PrefillCost(const ShardedGraph& sharded, const std::vector<RankLoad>& loads,
                 const RankSpeed& speed, int64_t tokens) {
  const int32_t pieces = std::max(1, sharded.plan.mesh.pipeline);
  const double rows = static_cast<double>(tokens) / pieces;
  const std::vector<Cost> stages = StageCosts(sharded, speed, rows, [&](size_t rank) {
    const RankLoad& load = loads[rank];
    return Work(std::min(load.weight_bytes, load.token_bytes * rows),
                load.token_ops * rows + load.output_ops, load, speed);
  });
  Cost all;
  for (const Cost& stage : stages) Add(all, stage);
  // The first piece passes all stages; the others follow at the pace of the slowest.
  const Cost& slowest =
      *std::ranges::max_element(stages, {}, [](const Cost& stage) { return stage.seconds(); });
  for (int32_t i = 1; i < pieces; ++i) Add(all, slowest);
  return all;
}

Traffic TokenTraffic(const ShardedGraph& sharded) {
  Traffic traffic;
  const Mesh& mesh = sharded.plan.mesh;
  std::vector<int64_t> token(static_cast<size_t>(mesh.ranks())), row = token;
  for (const Collective& collective : sharded.collectives) {
    using enum Collective::Kind;
    int64_t& count = collective.kind == kReduce   ? traffic.reduces
                     : collective.kind == kGather ? traffic.gathers
                                                  : traffic.sends;
    ++count;
    for (int32_t rank = StageOf(collective, mesh) * mesh.tensor, end = rank + mesh.tensor;
         rank < end; ++rank) {
      const auto at = static_cast<size_t>(rank);
      const int64_t bytes =
          collective.kind == kSend ? collective.most_received() : collective.received(at);
      token[at] += bytes;
      if (collective.layer >= 0) row[at] += bytes;
    }
  }
  traffic.bytes = std::ranges::max(token);
  traffic.row_bytes = std::ranges::max(row);
  return traffic;
}

}  // namespace lockstep
