// Station 4, the plan: which ranks there are, and what is shared between them.
#pragma once

#include <string>
#include <vector>

#include "shard/placement.h"

namespace lockstep {

enum class SplitMode : uint8_t {
  kNone,    // one rank has all
  kLayer,   // ranks have runs of layers
  kTensor,  // ranks have a part of every layer
};
// "none", "layer", "tensor"
std::string_view SplitModeName(SplitMode mode);

// What ranks have of a mixture's experts.
enum class ExpertSplit : uint8_t {
  kSlices,  // a slice of every expert
  kWhole,   // some experts
};
// "slices", "whole"
std::string_view ExpertSplitName(ExpertSplit split);

// A plan seeds cuts on the named axes of weights and states; everything else follows from the rules of operations (shard/shard.h).
// Sums are cut where their canonical trees allow, so no plan changes a bit.
struct Plan {
  Mesh mesh;
  // Shares of ranks along each mesh axis; empty: equal. 0: nothing.
  std::vector<double> tensor_shares, pipeline_shares;
  // The axes whose cut is wanted, the first before others: heads (KV heads, or the query heads of one), feed-forward width, vocabulary; e:
  // experts.
  std::string seeds = "grfv";

  bool operator==(const Plan&) const = default;
};

// A plan of `ranks` along the mesh axis of `mode`, with proportions as `-ts 3,1` gives them (empty: equal). Throws Refused where there are
// fewer than 1 or more than kMostRanks ranks, proportions of another number, negative, not finite or all 0, or more than one rank in mode none.
inline constexpr int32_t kMostRanks = 1024;
Plan MakePlan(SplitMode mode, int32_t ranks, const std::vector<double>& proportions,
              ExpertSplit experts = ExpertSplit::kSlices);

}  // namespace lockstep
