// How much each chosen expert counts.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kExpertWeightsRule = "te!, tu! -> tu";
inline constexpr std::string_view kExpertWeightsScaledRule = "te!, tu!, e! -> tu";

struct ExpertWeightsSettings {
  enum class Normalize {
    kNone,
    kSum,      // divided by max(sum + sum_offset, sum_floor)
    kSoftmax,  // soft-max over the chosen
  };
  Normalize normalize = Normalize::kNone;
  float sum_offset = 0;  // 1e-20 in DeepSeek-V3
  float sum_floor = 0;   // 1e-12 in ERNIE 4.5
  float scale = 1;       // last
};

// The expert that an id stands for, or -1 where it is none of 0 .. experts - 1: ids may come from a file's table.
inline int64_t ExpertOf(float id, int64_t experts) {
  return id >= 0 && id < static_cast<float>(experts) ? static_cast<int64_t>(id) : -1;
}

// weights[u] from the scores of the chosen: gathered, normalised, times scale, times the expert's own scale (scales: [e] or null).
// The sum is taken from 0 in the order of ids. An id that stands for no expert has weight 0.
// scores: [experts], ids: [used]
void ExpertWeights(const ExpertWeightsSettings& settings, const float* scores, int64_t experts,
                   const float* ids, int64_t used, const float* scales, float* weights);

}  // namespace lockstep
