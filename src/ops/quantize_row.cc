#include "ops/quantize_row.h"

#include <bit>

#include "ops/row_reference.h"
#include "simd/scalar.h"

namespace lockstep {

namespace {

constexpr int32_t kInfBits = 0x7F800000;

}  // namespace

bool QuantizeRowReference(const float* x, int64_t k, QuantizedRow out) {
  bool finite = true;
  for (int64_t begin = 0; begin < k; begin += kQuantizeBlock) {
    int64_t width = std::min(kQuantizeBlock, k - begin);
    int64_t block = begin / kQuantizeBlock;
    int32_t max_bits = MaxAbsBits(x + begin, width);
    if (max_bits >= kInfBits) finite = false;
    float amax = max_bits < kInfBits ? std::bit_cast<float>(max_bits) : 0;
    bool small = amax < 0x1p-96f;
    float up = small ? 0x1p96f : 1, down = small ? 0x1p-96f : 1;
    float inverse = amax == 0 ? 0 : 127 / (amax * up);
    out.scales[block] = amax * up / 127 * down;
    int32_t sums[3] = {0, 0, 0};
    for (int64_t i = 0; i < kQuantizeBlock; ++i) {
      int32_t code = i < width && amax != 0 ? scalar::RoundToInt(x[begin + i] * up * inverse) : 0;
      out.codes[begin + i] = static_cast<int8_t>(code);
      sums[i / 16] += code;
      sums[2] += code;
    }
    for (int64_t i = 0; i < 3; ++i) {
      out.minus_sums[3 * block + i] = -sums[i];
      out.scaled_sums[3 * block + i] = out.scales[block] * static_cast<float>(sums[i]);
    }
  }
  return finite;
}

}  // namespace lockstep
