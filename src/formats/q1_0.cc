// Q1_0: one bit and an f16 scale for 128 weights: a set bit is plus the scale, a clear one minus.
#include "formats/fit.h"

namespace lockstep {
namespace {

struct Q1_0 {
  struct Block {
    uint16_t d;
    uint8_t qs[16];
  };
  static constexpr int kBlock = 128;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    Unpack<1, 1>(block.qs, 16, codes);
    for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<int8_t>(2 * codes[i] - 1);
    std::fill_n(scales, kBlock / kGroup, F16ToF32(block.d));
  }

  // The scale of least squares for given signs is the mean magnitude.
  static Block Encode(const float* x) {
    double sum = 0;
    int8_t bits[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      sum += std::abs(x[i]);
      bits[i] = x[i] >= 0;
    }
    Block block;
    block.d = F16Nearest(static_cast<float>(sum / kBlock));
    Pack<1, 1>(bits, 16, block.qs);
    return block;
  }

  static Block Fit(const FitInput& input) {
    double sum = 0, weight = 0;
    int8_t bits[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      sum += static_cast<double>(input.w[i]) * std::abs(input.x[i]);
      weight += input.w[i];
      bits[i] = input.x[i] >= 0;
    }
    Block block;
    block.d = input.F16(weight > 0 ? static_cast<float>(sum / weight) : 0);
    Pack<1, 1>(bits, 16, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ1_0 = BlockFormat<Q1_0>("Q1_0", 41);

}  // namespace lockstep
