#include "shard/plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {

std::string_view SplitModeName(SplitMode mode) {
  constexpr std::string_view kNames[] = {"none", "layer", "tensor"};
  return kNames[static_cast<size_t>(mode)];
}

std::string_view ExpertSplitName(ExpertSplit split) {
  constexpr std::string_view kNames[] = {"slices", "whole"};
  return kNames[static_cast<size_t>(split)];
}

Plan MakePlan(SplitMode mode, int32_t ranks, const std::vector<double>& proportions,
              ExpertSplit experts) {
  if (ranks < 1 || ranks > kMostRanks) {
    throw Refused("plan: ranks: expected 1 to {}, found {}", kMostRanks, ranks);
  }
  if (mode == SplitMode::kNone && ranks != 1) {
    throw Refused("plan: mode none: expected 1 rank, found {}", ranks);
  }
  if (!proportions.empty() && std::ssize(proportions) != ranks) {
    throw Refused("plan: proportions: expected {}, one for each rank, found {}", ranks,
                  proportions.size());
  }
  // More would leave nothing of the smaller shares beside the larger in a sum.
  constexpr double kMostShare = 1e6;
  for (double share : proportions) {
    if (!(share >= 0 && share <= kMostShare)) {
      throw Refused("plan: proportions: expected numbers from 0 to 1000000, found {}", share);
    }
  }
  if (!proportions.empty() && std::ranges::all_of(proportions, [](double s) { return s == 0; })) {
    throw Refused("plan: proportions: expected one above 0, found only 0");
  }
  Plan plan;
  if (experts == ExpertSplit::kWhole) plan.seeds = "grefv";
  if (mode == SplitMode::kLayer) {
    plan.mesh.pipeline = ranks;
    plan.pipeline_shares = proportions;
  } else {
    plan.mesh.tensor = ranks;
    plan.tensor_shares = proportions;
  }
  return plan;
}

}  // namespace lockstep
