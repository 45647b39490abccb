// IQ1_S: 256 weights in eights of an 11-bit grid index; each 32 have a 3-bit scale and a shift of
// +-1/8, times one f16.
#include "formats/grid_search.h"

namespace lockstep {
namespace {

struct IQ1_S : Iq1Levels {
  struct Block {
    uint16_t d;
    uint8_t qs[32];  // low 8 bits of the indices
    uint16_t qh[8];  // four times the high 3 bits, the scale, the sign of the shift
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 8; ++g) {
      const int high = block.qh[g];
      scales[g] = d * static_cast<float>(2 * (high >> 12 & 7) + 1) * 0.125f;
      for (int k = 0; k < 4; ++k, codes += 8) {
        const int index = block.qs[4 * g + k] | (high >> 3 * k & 7) << 8;
        ShiftedEighths(kIq1Grid[index], high & 0x8000, codes);
      }
    }
  }

  static void Nearest(const float* x, const float* w, float inverse, int8_t* codes) {
    int8_t down[kGroup];
    const float up_error = NearestShifted<kGroup>(x, w, inverse, 1, codes);
    if (NearestShifted<kGroup>(x, w, inverse, -1, down) < up_error) {
      std::copy_n(down, kGroup, codes);
    }
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitLeveled<IQ1_S>(input);
    Block block;
    block.d = fit.d;
    for (int g = 0; g < 8; ++g) {
      int high = fit.levels[g] << 12;
      for (int k = 0; k < 4; ++k) {
        const ShiftedEntry entry = FindShifted(fit.codes + 8 * (4 * g + k));
        block.qs[4 * g + k] = static_cast<uint8_t>(entry.index);
        high |= entry.index >> 8 << 3 * k;
        if (entry.down) high |= 0x8000;
      }
      block.qh[g] = static_cast<uint16_t>(high);
    }
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ1_S = BlockFormat<IQ1_S>("IQ1_S", 19);

}  // namespace lockstep
