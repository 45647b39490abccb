// What a plan will cost: seconds of a step, from what ranks read, multiply and exchange, and from the speed of machines.
//
// Ranks of a stage work at the same time and meet in collectives, so a stage takes as long as its slowest rank, and collectives on top. One token
// passes the stages one after the other; a prompt is cut in as many pieces as there are stages, which then work side by side.
//
// A collective of n ranks takes the latency of ceil(log2 n) messages, and the time in which the rank that receives the most receives it. Products
// of attention and work on vectors are not counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shard/shard.h"

namespace lockstep {

// Speeds that one rank has for itself.
struct RankSpeed {
  double bytes_per_s = 0;         // read from memory
  double ops_per_s = 0;           // of 8-bit codes; a multiplication and an addition are two
  double link_bytes_per_s = 0;    // received from other ranks
  double collective_seconds = 0;  // of a collective of no bytes between two ranks
  double barrier_seconds = 0;     // of a barrier of the rank's threads
};

// What one rank does.
struct RankLoad {
  double weight_bytes = 0;    // that are multiplied
  double token_bytes = 0;     // of them, what one token reads, on average where it chooses experts
  double position_bytes = 0;  // of the cache, for each position that a token sees
  double token_ops = 0;       // of one token, without the output head
  double output_ops = 0;      // of a row of logits
  double barriers = 0;        // of a step
  // Where ranks have experts whole: bytes and operations of one token beyond the average, on the rank with the most of the chosen experts.
  double most_bytes = 0, most_ops = 0;
};

// Seconds, by what bounds them.
struct Cost {
  double memory = 0, compute = 0, exchange = 0, barriers = 0;

  double seconds() const { return memory + compute + exchange + barriers; }
};

// How many of `used` experts, each as likely as any other, the rank with the most of them has on average. owned: how many each rank has. Where
// more than kMostCountedExperts are used they count as spread evenly.
inline constexpr int64_t kMostCountedExperts = 64;
double ExpectedMost(std::span<const int64_t> owned, int64_t used);

// One token of one sequence behind `depth` cached positions. loads: of every rank of the mesh.
Cost DecodeCost(const ShardedGraph& sharded, const std::vector<RankLoad>& loads,
                const RankSpeed& speed, int64_t depth);

// A prompt of `tokens`, of which the last one's logits are wanted, at the beginning of a sequence.
Cost PrefillCost(const ShardedGraph& sharded, const std::vector<RankLoad>& loads,
                 const RankSpeed& speed, int64_t tokens);

// Of one token: collectives of all stages, and bytes that the rank with the most receives in all of them.
struct Traffic {
  int64_t reduces = 0, gathers = 0, sends = 0;
  int64_t bytes = 0;
  int64_t row_bytes = 0;  // of them, what each row of a prompt costs: all but results
};
Traffic TokenTraffic(const ShardedGraph& sharded);

}  // namespace lockstep
