// IQ3_S: 256 weights in fours of a 9-bit grid index and eights of 8 sign bits; each 32 have a 4-bit
// scale, times one f16.
#include "formats/grid_search.h"

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

  static constexpr SearchRange kSearch = {15, 0.8f, 1.25f, 17};
  static constexpr int kLow = 0, kHigh = 15, kFull = 15;
  static constexpr float kStep = 2, kOffset = 1;
  static constexpr float kStarts[] = {0.9f, 1.0f, 1.1f};
  static void Nearest(const float* x, const float* w, float inverse, int8_t* codes) {
    NearestEntries<4, kGroup>(Iq3SSearch(), x, w, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    float magnitudes[kBlock];
    uint8_t signs[32];
    SplitSigns(input.x, input.w, SignSet::kAll, magnitudes, signs);
    const auto fit = FitLeveled<IQ3_S>({magnitudes, input.w, input.exponent});
    Block block;
    block.d = fit.d;
    int8_t high[64];
    for (int k = 0; k < 64; ++k) {
      const int index = Iq3SSearch().Index(fit.codes + 4 * k);
      block.qs[k] = static_cast<uint8_t>(index);
      high[k] = static_cast<int8_t>(index >> 8);
    }
    std::copy_n(signs, 32, block.signs);
    Pack<1, 1>(high, 8, block.qh);
    Pack<4, 1>(fit.levels, 4, block.scales);
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ3_S = BlockFormat<IQ3_S>("IQ3_S", 21);

}  // namespace lockstep
