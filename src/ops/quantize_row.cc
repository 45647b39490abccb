#include "ops/quantize_row.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/checked.h"
#include "ops/row_reference.h"
#include "simd/scalar.h"

namespace lockstep {

namespace {

constexpr int32_t kInfBits = 0x7F800000;

}  // namespace

bool QuantizeRowReference(const float* x, int64_t k, QuantizedRow out) {
  bool finite = true;
  for (int64_t block = 0; block < CeilDiv(k, kBlockK); ++block) {
    float sum_x = 0;
    for (int64_t half = 0; half < kBlockScales; ++half) {
      const int64_t at = block * kBlockScales + half, begin = at * kActivationBlock;
      const int64_t width = std::clamp<int64_t>(k - begin, 0, kActivationBlock);
      const int32_t max_bits = MaxAbsBits(x + begin, width);
      if (max_bits >= kInfBits) finite = false;
      const float amax = max_bits < kInfBits ? std::bit_cast<float>(max_bits) : 0;
      const bool small = amax < 0x1p-96f;
      const float up = small ? 0x1p96f : 1, down = small ? 0x1p-96f : 1;
      const float inverse = amax == 0 ? 0 : 127 / (amax * up);
      const float scale = amax * up / 127 * down;
      int32_t sum = 0;
      for (int64_t i = 0; i < kActivationBlock; ++i) {
        const bool coded = i < width && amax != 0;
        const int32_t code = coded ? scalar::RoundToInt(x[begin + i] * up * inverse) : 0;
        out.codes[begin + i] = static_cast<int8_t>(code);
        sum += code;
      }
      const float scaled_sum = scale * static_cast<float>(sum);
      out.scales[at] = scale;
      out.minus_sums[at] = -sum;
      out.scaled_sums[block * kBlockSums + half] = scaled_sum;
      sum_x = half == 0 ? scaled_sum : std::fma(scale, static_cast<float>(sum), sum_x);
    }
    out.scaled_sums[block * kBlockSums + kBlockScales] = sum_x;
  }
  return finite;
}

}  // namespace lockstep
