#include "ops/top_experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The largest of what it was offered, by descending value; of equals those that came first. Ids come in ascending order.
class Best {
 public:
  explicit Best(int64_t most) : most_(static_cast<size_t>(most)) {}

  void Offer(int64_t id, float value) {
    if (std::isnan(value)) value = -kInfinity;
    if (count_ == most_ && !(value > values_[count_ - 1])) return;
    count_ = std::min(count_ + 1, most_);
    size_t at = count_ - 1;
    for (; at > 0 && value > values_[at - 1]; --at) {
      values_[at] = values_[at - 1];
      ids_[at] = ids_[at - 1];
    }
    values_[at] = value;
    ids_[at] = id;
  }
  size_t count() const { return count_; }
  int64_t id(size_t i) const { return ids_[i]; }
  float value(size_t i) const { return values_[i]; }

 private:
  size_t most_, count_ = 0;
  std::array<float, kMostUsedExperts> values_;
  std::array<int64_t, kMostUsedExperts> ids_;
};
static_assert(kMostExpertGroups <= kMostUsedExperts);

}  // namespace

bool TopExperts(const TopExpertsSettings& settings, const float* scores, const float* bias,
                int64_t experts, float* ids) {
  auto value = [&](int64_t i) { return bias == nullptr ? scores[i] : scores[i] + bias[i]; };
  const int64_t size = experts / settings.groups;
  std::array<bool, kMostExpertGroups> open;
  open.fill(settings.used_groups >= settings.groups);
  if (settings.used_groups < settings.groups) {
    Best groups(settings.used_groups);
    for (int64_t g = 0; g < settings.groups; ++g) {
      Best two(settings.groups_by_best_two ? 2 : 1);
      for (int64_t i = g * size; i < (g + 1) * size; ++i) two.Offer(i, value(i));
      groups.Offer(g, two.count() == 2 ? two.value(0) + two.value(1) : two.value(0));
    }
    for (size_t i = 0; i < groups.count(); ++i) open[static_cast<size_t>(groups.id(i))] = true;
  }
  Best best(settings.used);
  for (int64_t g = 0; g < settings.groups; ++g) {
    if (!open[static_cast<size_t>(g)]) continue;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) best.Offer(i, value(i));
  }
  for (size_t i = 0; i < best.count(); ++i) ids[i] = static_cast<float>(best.id(i));
  return std::all_of(scores, scores + experts, [](float score) { return std::isfinite(score); });
}

}  // namespace lockstep
