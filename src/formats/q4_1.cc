// Q4_1: 4-bit codes 0 .. 15, an f16 scale and an f16 minimum for 32 weights.
#include "formats/fit_affine.h"

namespace lockstep {
namespace {

struct Q4_1 {
  struct Block {
    uint16_t d;
    uint16_t m;
    uint8_t qs[16];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = true;

  static void Integers(const Block& block, int8_t* codes, float* scales, float* mins) {
    Unpack<4, 16>(block.qs, 16, codes);
    scales[0] = F16ToF32(block.d);
    mins[0] = F16ToF32(block.m);
  }

  // Codes 0 and 15 enclose all weights, the rounding of scale and minimum included.
  static Block Encode(const float* x) {
    const Bounds bounds = MinMax(x, kBlock);
    Block block;
    block.m = F16AtMost(bounds.min);
    const float m = F16ToF32(block.m);
    block.d = F16AtLeast((bounds.max - m) / 15);
    int8_t codes[kBlock];
    RoundCodes(x, kBlock, m, Inverse(F16ToF32(block.d)), 0, 15, codes);
    Pack<4, 16>(codes, 16, block.qs);
    return block;
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitAffineBlock<kBlock, 15>(input);
    Block block;
    block.d = fit.d;
    block.m = fit.m;
    Pack<4, 16>(fit.codes, 16, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ4_1 = BlockFormat<Q4_1>("Q4_1", 3);

}  // namespace lockstep
