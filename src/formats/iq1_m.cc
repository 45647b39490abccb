// IQ1_M: 256 weights in eights of an 11-bit grid index and a shift of +-1/8; each 16 have a 3-bit
// scale, times one f16.
#include "formats/grid_search.h"

namespace lockstep {
namespace {

struct IQ1_M : Iq1Levels {
  struct Block {
    uint8_t qs[32];      // low 8 bits of the indices
    uint8_t qh[16];      // a nibble for each: the high 3 bits, the sign of the shift
    uint16_t scales[4];  // four times 3 bits each, and on top the nibbles of the f16, lowest first
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 16;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    int bits = 0;
    for (int k = 0; k < 4; ++k) bits |= block.scales[k] >> 12 << 4 * k;
    const float d = F16ToF32(static_cast<uint16_t>(bits));
    for (int g = 0; g < 16; ++g) {
      scales[g] = d * static_cast<float>(2 * (block.scales[g / 4] >> 3 * (g % 4) & 7) + 1) * 0.125f;
    }
    int8_t high[32];
    Unpack<4, 1>(block.qh, 16, high);
    for (int k = 0; k < 32; ++k) {
      ShiftedEighths(kIq1Grid[block.qs[k] | (high[k] & 7) << 8], high[k] & 8, codes + 8 * k);
    }
  }

  static void Nearest(const float* x, const float* w, float inverse, int8_t* codes) {
    for (int k = 0; k < kGroup; k += 8) {
      int8_t down[8];
      const float up_error = NearestShifted<8>(x + k, w + k, inverse, 1, codes + k);
      if (NearestShifted<8>(x + k, w + k, inverse, -1, down) < up_error) {
        std::copy_n(down, 8, codes + k);
      }
    }
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitLeveled<IQ1_M>(input);
    Block block;
    int8_t high[32];
    for (int k = 0; k < 32; ++k) {
      const ShiftedEntry entry = FindShifted(fit.codes + 8 * k);
      block.qs[k] = static_cast<uint8_t>(entry.index);
      high[k] = static_cast<int8_t>(entry.index >> 8 | (entry.down ? 8 : 0));
    }
    Pack<4, 1>(high, 16, block.qh);
    for (int k = 0; k < 4; ++k) {
      int bits = (fit.d >> 4 * k & 0xF) << 12;
      for (int g = 0; g < 4; ++g) bits |= fit.levels[4 * k + g] << 3 * g;
      block.scales[k] = static_cast<uint16_t>(bits);
    }
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ1_M = BlockFormat<IQ1_M>("IQ1_M", 29);

}  // namespace lockstep
