// IQ2_S: 256 weights in eights of a 10-bit grid index and 8 sign bits; each 16 have a 4-bit scale,
// times one f16.
#include "formats/grid_search.h"

namespace lockstep {
namespace {

struct IQ2_S : Iq2Levels {
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

  static void Nearest(const float* x, const float* w, float inverse, int8_t* codes) {
    NearestEntries<8, kGroup>(Iq2SSearch(), x, w, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    float magnitudes[kBlock];
    uint8_t signs[32];
    SplitSigns(input.x, input.w, SignSet::kAll, magnitudes, signs);
    const auto fit = FitLeveled<IQ2_S>({magnitudes, input.w, input.exponent});
    Block block;
    block.d = fit.d;
    int8_t high[32];
    for (int k = 0; k < 32; ++k) {
      const int index = Iq2SSearch().Index(fit.codes + 8 * k);
      block.qs[k] = static_cast<uint8_t>(index);
      high[k] = static_cast<int8_t>(index >> 8);
    }
    std::copy_n(signs, 32, block.signs);
    Pack<2, 1>(high, 8, block.qh);
    Pack<4, 1>(fit.levels, 8, block.scales);
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ2_S = BlockFormat<IQ2_S>("IQ2_S", 22);

}  // namespace lockstep
