// IQ4_XS: 4-bit indices of the table of IQ4_NL for 256 weights; each 32 have a 6-bit scale -32 ..
// 31, times one f16.
#include "formats/code_tables.h"

namespace lockstep {
namespace {

struct IQ4_XS {
  struct Block {
    uint16_t d;
    uint8_t scales_high[2];  // high 2 bits of 8 scales
    uint8_t scales_low[4];   // low 4 bits
    uint8_t qs[128];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    Unpack<4, 16>(block.qs, 128, codes);
    MapCodes<kBlock>(kIq4Values, codes);

    int8_t low[8];
    int8_t high[8];
    Unpack<4, 1>(block.scales_low, 4, low);
    Unpack<2, 1>(block.scales_high, 2, high);
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 8; ++g) scales[g] = d * static_cast<float>((low[g] | high[g] << 4) - 32);
  }

  static constexpr SearchRange kSearch = {-127, 0.8f, 1.2f, 17};
  static constexpr int kLow = -32, kHigh = 31, kFull = -32;
  static constexpr float kStep = 1, kOffset = 0;
  static constexpr float kStarts[] = {0.9f, 1.0f, 1.1f};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestIq4(x, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitLeveled<IQ4_XS>(input);
    Block block;
    block.d = fit.d;
    int8_t indices[kBlock], levels[8], high[8];
    Iq4Indices(fit.codes, kBlock, indices);
    for (int g = 0; g < 8; ++g) {
      levels[g] = static_cast<int8_t>(fit.levels[g] + 32);
      high[g] = static_cast<int8_t>(levels[g] >> 4);
    }
    Pack<4, 16>(indices, 128, block.qs);
    Pack<4, 1>(levels, 4, block.scales_low);
    Pack<2, 1>(high, 2, block.scales_high);
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ4_XS = BlockFormat<IQ4_XS>("IQ4_XS", 23);

}  // namespace lockstep
