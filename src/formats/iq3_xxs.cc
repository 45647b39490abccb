// IQ3_XXS: 256 weights in fours of an 8-bit grid index and eights of 7 sign bits; each 32 have a
// 4-bit scale, times one f16.
#include "formats/iq_grids.h"

namespace lockstep {
namespace {

struct IQ3_XXS {
  struct Block {
    uint16_t d;
    uint8_t qs[64];
    uint8_t signs[8][4];  // four times 7 sign bits, then the scale
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    const float d = F16ToF32(block.d);
    const uint8_t* index = block.qs;
    for (int g = 0; g < 8; ++g) {
      uint32_t signs;
      std::memcpy(&signs, block.signs[g], sizeof(signs));
      scales[g] = d * (static_cast<float>(signs >> 28) + 0.5f) * 0.5f;
      for (int k = 0; k < 4; ++k, index += 2, codes += 8) {
        SignedPair(kIq3XxsGrid[index[0]], kIq3XxsGrid[index[1]], EvenSigns(signs >> 7 * k), codes);
      }
    }
  }
};

}  // namespace

constinit const Format kFormatIQ3_XXS = BlockFormat<IQ3_XXS>("IQ3_XXS", 18);

}  // namespace lockstep
