// Q4_0: 4-bit codes -8 .. 7 and an f16 scale for 32 weights.
#include "formats/fit.h"

namespace lockstep {
namespace {

struct Q4_0 {
  struct Block {
    uint16_t d;
    uint8_t qs[16];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    Unpack<4, 16>(block.qs, 16, codes);
    for (int i = 0; i < kBlock; ++i) codes[i] -= 8;
    scales[0] = F16ToF32(block.d);
  }

  // The weight of largest magnitude gets code -8, whatever its sign; one as large of the other sign
  // is a step off.
  static Block Encode(const float* x) {
    Block block;
    block.d = F16Away(Extreme(x, kBlock) / -8);
    int8_t codes[kBlock];
    RoundCodes(x, kBlock, 0, Inverse(F16ToF32(block.d)), -8, 7, codes);
    for (int8_t& code : codes) code += 8;
    Pack<4, 16>(codes, 16, block.qs);
    return block;
  }

  static constexpr SearchRange kSearch = {-8, 0.8f, 1.2f, 25};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestInteger<-8, 7, kGroup>(x, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    auto fit = FitSingle<Q4_0>(input);
    Block block;
    block.d = fit.d;
    for (int8_t& code : fit.codes) code += 8;
    Pack<4, 16>(fit.codes, 16, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ4_0 = BlockFormat<Q4_0>("Q4_0", 2);

}  // namespace lockstep
