#include "formats/gemm.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace lockstep {

namespace {

// Where the parts of quantised rows begin, and where the last ends.
struct RowParts {
  int64_t stride, scales, minus_sums, scaled_sums, end;

  RowParts(int64_t rows, int64_t k)
      // A line more than the width: rows a power of two apart would share the few places that a
      // cache has for one address.
      : stride(k + 64),
        scales(RoundUp(rows * stride, 64)),
        minus_sums(scales + RoundUp(rows * k / kBlockK * kBlockScales * 4, 64)),
        scaled_sums(minus_sums + RoundUp(rows * k / kBlockK * kBlockScales * 4, 64)),
        end(scaled_sums + RoundUp(rows * k / kBlockK * kBlockSums * 4, 64)) {}
};

}  // namespace

int64_t QuantizedRows::Bytes(int64_t rows, int64_t k) { return RowParts(rows, k).end; }

QuantizedRows QuantizedRows::At(std::byte* piece, int64_t rows, int64_t k) {
  const RowParts parts(rows, k);
  return {reinterpret_cast<int8_t*>(piece),
          reinterpret_cast<float*>(piece + parts.scales),
          reinterpret_cast<int32_t*>(piece + parts.minus_sums),
          reinterpret_cast<float*>(piece + parts.scaled_sums),
          k,
          parts.stride};
}

void QuantizedRows::CopyRow(int64_t to, const QuantizedRows& other, int64_t from) const {
  const QuantizedRows out = From(to), in = other.From(from);
  std::copy_n(in.codes, k, out.codes);
  std::copy_n(in.scales, blocks() * kBlockScales, out.scales);
  std::copy_n(in.minus_sums, blocks() * kBlockScales, out.minus_sums);
  std::copy_n(in.scaled_sums, blocks() * kBlockSums, out.scaled_sums);
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
    float sum_x = 0;
    for (int64_t j = i; j < i + format.group; j += kActivationBlock) {
      const float scale_x = x.scales[j / kActivationBlock];
      int32_t dot = 0, sum = 0;
      for (int64_t at = j; at < j + kActivationBlock; ++at) {
        dot += w[at - i + g * format.group] * x.codes[at];
        sum += x.codes[at];
      }
      a = std::fma(w_scales[g] * scale_x, static_cast<float>(dot), a);
      sum_x = j == i ? scale_x * static_cast<float>(sum)
                     : std::fma(scale_x, static_cast<float>(sum), sum_x);
    }
    if (format.has_min) a = std::fma(w_mins[g], sum_x, a);
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
