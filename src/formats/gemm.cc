#include "formats/gemm.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace lockstep {

int64_t QuantizedRows::Bytes(int64_t rows, int64_t k) {
  const int64_t blocks = k / kBlockK;
  return RoundUp(rows * Stride(k), 64) + RoundUp(rows * blocks * 4, 64) +
         2 * RoundUp(rows * blocks * 12, 64);
}

QuantizedRows QuantizedRows::At(std::byte* piece, int64_t rows, int64_t k) {
  const int64_t blocks = k / kBlockK;
  auto take = [&](int64_t bytes) {
    std::byte* part = piece;
    piece += RoundUp(bytes, 64);
    return part;
  };
  QuantizedRows q;
  q.codes = reinterpret_cast<int8_t*>(take(rows * Stride(k)));
  q.scales = reinterpret_cast<float*>(take(rows * blocks * 4));
  q.minus_sums = reinterpret_cast<int32_t*>(take(rows * blocks * 12));
  q.scaled_sums = reinterpret_cast<float*>(take(rows * blocks * 12));
  q.k = k;
  q.stride = Stride(k);
  return q;
}

void QuantizedRows::CopyRow(int64_t to, const QuantizedRows& other, int64_t from) const {
  const QuantizedRows out = From(to), in = other.From(from);
  std::copy_n(in.codes, k, out.codes);
  std::copy_n(in.scales, blocks(), out.scales);
  std::copy_n(in.minus_sums, blocks() * 3, out.minus_sums);
  std::copy_n(in.scaled_sums, blocks() * 3, out.scaled_sums);
}

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
