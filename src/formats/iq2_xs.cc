// IQ2_XS: 256 weights in eights of a 9-bit grid index and 7 sign bits; each 16 have a 4-bit scale,
// times one f16.
#include "formats/iq_grids.h"

namespace lockstep {
namespace {

struct IQ2_XS {
  struct Block {
    uint16_t d;
    uint16_t qs[32];  // index, then signs
    uint8_t scales[8];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 16;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    for (int k = 0; k < 32; ++k) {
      const uint16_t q = block.qs[k];
      ApplySigns(kIq2XsGrid[q & 0x1FF].data(), EvenSigns(q >> 9), codes + 8 * k);
    }
    HalfStepScales(F16ToF32(block.d), block.scales, scales);
  }
};

}  // namespace

constinit const Format kFormatIQ2_XS = BlockFormat<IQ2_XS>("IQ2_XS", 17);

}  // namespace lockstep
