// IQ2_S: 256 weights in eights of a 10-bit grid index and 8 sign bits; each 16 have a 4-bit scale,
// times one f16.
#include "formats/iq_grids.h"

namespace lockstep {
namespace {

struct IQ2_S {
  struct Block {
    uint16_t d;
    uint8_t qs[32];  // low 8 bits of the indices
    uint8_t signs[32];
    uint8_t qh[8];  // high 2 bits
    uint8_t scales[8];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 16;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    int8_t high[32];
    Unpack<2, 1>(block.qh, 8, high);
    for (int k = 0; k < 32; ++k) {
      ApplySigns(kIq2SGrid[block.qs[k] | high[k] << 8].data(), block.signs[k], codes + 8 * k);
    }
    HalfStepScales(F16ToF32(block.d), block.scales, scales);
  }
};

}  // namespace

constinit const Format kFormatIQ2_S = BlockFormat<IQ2_S>("IQ2_S", 22);

}  // namespace lockstep
