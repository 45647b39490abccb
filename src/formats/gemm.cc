#include "formats/gemm.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace lockstep {

int64_t SegmentLength(int64_t size, int64_t unit) {
  const int64_t units = CeilDiv(size, unit);
  const int64_t preferred =
      std::min(std::max<int64_t>(1, 128 / unit), std::max<int64_t>(1, units / 8));
  return unit * std::max(preferred, CeilDiv(units, kMaxSegments));
}

std::vector<float> SegmentSums(const Format& format, const std::byte* row, int64_t k,
                               int64_t segment, const QuantizedRows& x) {
  if (segment == 0) segment = k;
  const int groups = format.block / format.group;
  std::vector<int8_t> w(format.block);
  std::vector<float> w_scales(groups), w_mins(groups), totals;
  float a = 0;
  for (int64_t i = 0; i < k; i += format.group) {
    if (i % format.block == 0) {
      format.integers(row + i / format.block * format.block_bytes, w.data(), w_scales.data(),
                      w_mins.data());
    }
    const int64_t g = i % format.block / format.group;
    const float scale_x = x.scales[i / kBlockK];
    int32_t dot = 0, sum = 0;
    for (int j = 0; j < format.group; ++j) {
      dot += w[g * format.group + j] * x.codes[i + j];
      sum += x.codes[i + j];
    }
    a = std::fma(w_scales[g] * scale_x, static_cast<float>(dot), a);
    if (format.has_min) a = std::fma(w_mins[g], scale_x * static_cast<float>(sum), a);
    if ((i + format.group) % segment == 0 || i + format.group == k) {
      totals.push_back(a);
      a = 0;
    }
  }
  return totals;
}

std::vector<float> SegmentSums(const Format& format, const std::byte* row, int64_t k,
                               int64_t segment, const float* x) {
  if (segment == 0) segment = k;
  std::vector<float> w(k), totals;
  format.decode(row, k, w.data());
  for (int64_t begin = 0; begin < k; begin += segment) {
    float a = 0;
    for (int64_t i = begin; i < std::min(k, begin + segment); ++i) a = std::fma(w[i], x[i], a);
    totals.push_back(a);
  }
  return totals;
}

}  // namespace lockstep
