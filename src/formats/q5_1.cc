// Q5_1: 5-bit codes 0 .. 31, an f16 scale and an f16 minimum for 32 weights.
#include "formats/fit_affine.h"
#include "formats/five_bits.h"

namespace lockstep {
namespace {

struct Q5_1 {
  struct Block {
    uint16_t d;
    uint16_t m;
    uint8_t qh[4];
    uint8_t qs[16];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = true;

  static void Integers(const Block& block, int8_t* codes, float* scales, float* mins) {
    UnpackFiveBits(block.qh, block.qs, codes);
    scales[0] = F16ToF32(block.d);
    mins[0] = F16ToF32(block.m);
  }

  // Codes 0 and 31 enclose all weights, the rounding of scale and minimum included.
  static Block Encode(const float* x) {
    const Bounds bounds = MinMax(x, kBlock);
    Block block;
    block.m = F16AtMost(bounds.min);
    const float m = F16ToF32(block.m);
    block.d = F16AtLeast((bounds.max - m) / 31);
    int8_t codes[kBlock];
    RoundCodes(x, kBlock, m, Inverse(F16ToF32(block.d)), 0, 31, codes);
    PackFiveBits(codes, block.qh, block.qs);
    return block;
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitAffineBlock<kBlock, 31>(input);
    Block block;
    block.d = fit.d;
    block.m = fit.m;
    PackFiveBits(fit.codes, block.qh, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ5_1 = BlockFormat<Q5_1>("Q5_1", 7);

}  // namespace lockstep
