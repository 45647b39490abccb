// Which experts a token is sent to: the best of its router scores.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kTopExpertsRule = "te! -> tu";
inline constexpr std::string_view kTopExpertsBiasedRule = "te!, e! -> tu";
// Most experts of a token, and most groups of experts.
inline constexpr int64_t kMostUsedExperts = 64, kMostExpertGroups = 64;

struct TopExpertsSettings {
  int64_t used = 1;  // u, at most kMostUsedExperts and the experts of used_groups
  // Experts stand in `groups` groups of neighbours, of which the best `used_groups` are chosen from (DeepSeek-V2,
  // arXiv 2405.04434). A group is as good as its best expert, or as the sum of its best two (DeepSeek-V3).
  int64_t groups = 1, used_groups = 1;
  bool groups_by_best_two = false;
};

// ids[u] = the experts of the largest scores[i] + bias[i] (bias: [e] or null), by descending sum, as whole numbers: exact, as experts
// are far fewer than 2^24. Of equals the lower expert comes first, of groups likewise. A NaN is smaller than all else. Returns whether
// all scores are finite.
bool TopExperts(const TopExpertsSettings& settings, const float* scores, const float* bias,
                int64_t experts, float* ids);

}  // namespace lockstep
