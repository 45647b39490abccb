#include "ops/expert_weights.h"

#include <algorithm>

#include "ops/softmax.h"

namespace lockstep {

void ExpertWeights(const ExpertWeightsSettings& settings, const float* scores, int64_t experts,
                   const float* ids, int64_t used, const float* scales, float* weights) {
  using Normalize = ExpertWeightsSettings::Normalize;
  float sum = 0;
  for (int64_t i = 0; i < used; ++i) {
    const int64_t e = ExpertOf(ids[i], experts);
    weights[i] = e < 0 ? 0 : scores[e];
    sum += weights[i];
  }
  if (settings.normalize == Normalize::kSoftmax) SoftmaxReference(weights, used, weights);
  if (settings.normalize == Normalize::kSum) {
    const float divisor = std::max(sum + settings.sum_offset, settings.sum_floor);
    for (int64_t i = 0; i < used; ++i) weights[i] /= divisor;
  }
  for (int64_t i = 0; i < used; ++i) {
    const int64_t e = ExpertOf(ids[i], experts);
    weights[i] *= settings.scale;
    if (scales != nullptr && e >= 0) weights[i] *= scales[e];
  }
}

}  // namespace lockstep
