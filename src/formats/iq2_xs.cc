// IQ2_XS: 256 weights in eights of a 9-bit grid index and 7 sign bits; each 16 have a 4-bit scale,
// times one f16.
#include "formats/grid_search.h"

namespace lockstep {
namespace {

struct IQ2_XS : Iq2Levels {
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

  static void Nearest(const float* x, const float* w, float inverse, int8_t* codes) {
    NearestEntries<8, kGroup>(Iq2XsSearch(), x, w, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    float magnitudes[kBlock];
    uint8_t signs[32];
    SplitSigns(input.x, input.w, SignSet::kEven, magnitudes, signs);
    const auto fit = FitLeveled<IQ2_XS>({magnitudes, input.w, input.exponent});
    Block block;
    block.d = fit.d;
    for (int k = 0; k < 32; ++k) {
      const int index = Iq2XsSearch().Index(fit.codes + 8 * k);
      block.qs[k] = static_cast<uint16_t>(index | (signs[k] & 0x7F) << 9);
    }
    Pack<4, 1>(fit.levels, 8, block.scales);
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ2_XS = BlockFormat<IQ2_XS>("IQ2_XS", 17);

}  // namespace lockstep
