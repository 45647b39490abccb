// IQ3_S: 256 weights in fours of a 9-bit grid index and eights of 8 sign bits; each 32 have a 4-bit
// scale, times one f16.
#include "formats/iq_grids.h"

namespace lockstep {
namespace {

struct IQ3_S {
  struct Block {
    uint16_t d;
    uint8_t qs[64];  // low 8 bits of the indices
    uint8_t qh[8];   // high bits
    uint8_t signs[32];
    uint8_t scales[4];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    int8_t high[64];
    Unpack<1, 1>(block.qh, 8, high);
    for (int k = 0; k < 32; ++k) {
      const int i = 2 * k;
      SignedPair(kIq3SGrid[block.qs[i] | high[i] << 8],
                 kIq3SGrid[block.qs[i + 1] | high[i + 1] << 8], block.signs[k], codes + 8 * k);
    }
    int8_t steps[8];
    Unpack<4, 1>(block.scales, 4, steps);
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 8; ++g) scales[g] = d * static_cast<float>(1 + 2 * steps[g]);
  }
};

}  // namespace

constinit const Format kFormatIQ3_S = BlockFormat<IQ3_S>("IQ3_S", 21);

}  // namespace lockstep
