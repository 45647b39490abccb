// Q2_K: 2-bit codes 0 .. 3 for 256 weights; each 16 have a 4-bit scale and minimum, times an f16
// each.
#include "formats/fit_affine.h"

namespace lockstep {
namespace {

struct Q2_K {
  struct Block {
    uint8_t scales[16];  // scale in the low nibble, minimum in the high one
    uint8_t qs[64];
    uint16_t d;
    uint16_t dmin;
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 16;
  static constexpr bool kHasMin = true;

  static void Integers(const Block& block, int8_t* codes, float* scales, float* mins) {
    Unpack<2, 32>(block.qs, 64, codes);
    const float d = F16ToF32(block.d);
    const float dmin = F16ToF32(block.dmin);
    for (int g = 0; g < 16; ++g) {
      scales[g] = d * static_cast<float>(block.scales[g] & 0x0F);
      mins[g] = -(dmin * static_cast<float>(block.scales[g] >> 4));
    }
  }

  static constexpr int kMost = 3;
  static constexpr int kLevels = 15;

  static Block Fit(const FitInput& input) {
    const auto fit = FitAffineLeveled<Q2_K>(input);
    Block block;
    block.d = fit.d;
    block.dmin = fit.dmin;
    for (int g = 0; g < 16; ++g) {
      block.scales[g] = static_cast<uint8_t>(fit.scales[g] | fit.mins[g] << 4);
    }
    Pack<2, 32>(fit.codes, 64, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ2_K = BlockFormat<Q2_K>("Q2_K", 10);

}  // namespace lockstep
