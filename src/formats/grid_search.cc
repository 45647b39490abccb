#include "formats/grid_search.h"

#include <algorithm>

namespace lockstep {

template <int kWidth>
GridSearch<kWidth>::GridSearch(std::span<const int8_t> values,
                               std::span<const std::array<int8_t, kWidth>> entries)
    : entries_(entries) {
  static_assert(kWidth == 4 || kWidth == 8);
  for (const auto& entry : entries) values_.insert(values_.end(), entry.begin(), entry.end());
  const auto base = static_cast<int>(values.size());
  for (int i = 0; i + 1 < base; ++i) {
    middles_.push_back(0.5f * static_cast<float>(values[static_cast<size_t>(i)] +
                                                 values[static_cast<size_t>(i) + 1]));
  }
  int points = 1;
  for (int k = 0; k < kWidth; ++k) points *= base;
  of_point_.assign(static_cast<size_t>(points), -1);
  for (size_t e = 0; e < entries.size(); ++e) {
    float x[kWidth];
    std::ranges::copy(entries[e], x);
    of_point_[static_cast<size_t>(Point(x))] = static_cast<int32_t>(e);
  }

  std::vector<std::pair<int, uint16_t>> distances(entries.size());
  for (int point = 0; point < points; ++point) {
    int32_t& slot = of_point_[static_cast<size_t>(point)];
    if (slot >= 0) continue;
    int at[kWidth];
    for (int k = 0, rest = point; k < kWidth; ++k, rest /= base) {
      at[k] = values[static_cast<size_t>(rest % base)];
    }
    for (size_t e = 0; e < entries.size(); ++e) {
      int sum = 0;
      for (int k = 0; k < kWidth; ++k) {
        const int off = at[k] - entries[e][static_cast<size_t>(k)];
        sum += off * off;
      }
      distances[e] = {sum, static_cast<uint16_t>(e)};
    }
    std::ranges::partial_sort(distances, distances.begin() + kNear);
    Near near;
    for (int i = 0; i < kNear; ++i) near.index[i] = distances[static_cast<size_t>(i)].second;
    slot = -1 - static_cast<int32_t>(near_.size());
    near_.push_back(near);
  }
}

template <int kWidth>
int GridSearch<kWidth>::Point(const float* x) const {
  const auto base = static_cast<int>(middles_.size()) + 1;
  int point = 0;
  for (int k = kWidth; k-- > 0;) {
    int digit = 0;
    for (float middle : middles_) digit += x[k] > middle;
    point = point * base + digit;
  }
  return point;
}

template <int kWidth>
int GridSearch<kWidth>::Nearest(const float* x, const float* w) const {
  const int32_t slot = of_point_[static_cast<size_t>(Point(x))];
  if (slot >= 0) return slot;
  const Near& near = near_[static_cast<size_t>(-1 - slot)];
  int best = near.index[0];
  float least = FLT_MAX;
  for (uint16_t index : near.index) {
    const float* values = values_.data() + static_cast<size_t>(index) * kWidth;
    float lanes[4];
    for (int k = 0; k < 4; ++k) {
      const float off = x[k] - values[k];
      lanes[k] = w[k] * (off * off);
    }
    if constexpr (kWidth == 8) {
      for (int k = 0; k < 4; ++k) {
        const float off = x[4 + k] - values[4 + k];
        lanes[k] += w[4 + k] * (off * off);
      }
    }
    const float error = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    if (error < least) {
      least = error;
      best = index;
    }
  }
  return best;
}

template <int kWidth>
int GridSearch<kWidth>::Index(const int8_t* values) const {
  float x[kWidth];
  std::copy_n(values, kWidth, x);
  const int32_t slot = of_point_[static_cast<size_t>(Point(x))];
  return slot >= 0 ? slot : near_[static_cast<size_t>(-1 - slot)].index[0];
}

template class GridSearch<4>;
template class GridSearch<8>;

namespace {

constexpr int8_t kTernary[] = {-1, 0, 1};
constexpr int8_t kIq2Values[] = {8, 25, 43};
constexpr int8_t kIq3XxsValues[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr int8_t kIq3SValues[] = {1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace

const GridSearch<8>& Iq1Search() {
  static const GridSearch<8> search(kTernary, kIq1Grid);
  return search;
}
const GridSearch<8>& Iq2XxsSearch() {
  static const GridSearch<8> search(kIq2Values, kIq2XxsGrid);
  return search;
}
const GridSearch<8>& Iq2XsSearch() {
  static const GridSearch<8> search(kIq2Values, kIq2XsGrid);
  return search;
}
const GridSearch<8>& Iq2SSearch() {
  static const GridSearch<8> search(kIq2Values, kIq2SGrid);
  return search;
}
const GridSearch<4>& Iq3XxsSearch() {
  static const GridSearch<4> search(kIq3XxsValues, kIq3XxsGrid);
  return search;
}
const GridSearch<4>& Iq3SSearch() {
  static const GridSearch<4> search(kIq3SValues, kIq3SGrid);
  return search;
}

void SplitSigns(const float* x, const float* w, SignSet set, float* magnitudes, uint8_t* signs) {
  for (int k = 0; k < 32; ++k, x += 8, w += 8, magnitudes += 8) {
    unsigned minuses = 0;
    int cheapest = 0;
    for (int i = 0; i < 8; ++i) {
      minuses |= static_cast<unsigned>(x[i] < 0) << i;
      magnitudes[i] = std::abs(x[i]);
      if (w[i] * (x[i] * x[i]) < w[cheapest] * (x[cheapest] * x[cheapest])) cheapest = i;
    }
    if (set == SignSet::kEven && std::popcount(minuses) % 2 == 1) {
      minuses ^= 1u << cheapest;
      magnitudes[cheapest] = -magnitudes[cheapest];
    }
    signs[k] = static_cast<uint8_t>(minuses);
  }
}

}  // namespace lockstep
