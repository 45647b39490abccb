// Q5_0: 5-bit codes -16 .. 15 and an f16 scale for 32 weights.
#include "formats/five_bits.h"

namespace lockstep {
namespace {

struct Q5_0 {
  struct Block {
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    UnpackFiveBits(block.qh, block.qs, codes);
    for (int i = 0; i < kBlock; ++i) codes[i] -= 16;
    scales[0] = F16ToF32(block.d);
  }

  // The weight of largest magnitude gets code -16, whatever its sign; one as large of the other
  // sign is a step off.
  static Block Encode(const float* x) {
    Block block;
    block.d = F16Away(Extreme(x, kBlock) / -16);
    int8_t codes[kBlock];
    RoundCodes(x, kBlock, 0, Inverse(F16ToF32(block.d)), -16, 15, codes);
    for (int8_t& code : codes) code += 16;
    PackFiveBits(codes, block.qh, block.qs);
    return block;
  }

  static constexpr SearchRange kSearch = {-16, 0.9f, 1.1f, 25};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestInteger<-16, 15, kGroup>(x, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    auto fit = FitSingle<Q5_0>(input);
    Block block;
    block.d = fit.d;
    for (int8_t& code : fit.codes) code += 16;
    PackFiveBits(fit.codes, block.qh, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ5_0 = BlockFormat<Q5_0>("Q5_0", 6);

}  // namespace lockstep
