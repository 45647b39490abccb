// Q3_K: 3-bit codes -4 .. 3 for 256 weights; each 16 have a 6-bit scale -32 .. 31, times one f16.
#include "formats/fit.h"

namespace lockstep {
namespace {

struct Q3_K {
  struct Block {
    uint8_t hmask[32];  // the high bits, inverted: a set bit adds nothing, a clear one -4
    uint8_t qs[64];
    uint8_t scales[12];  // low 4 bits of 16 scales, then their high 2 bits
    uint16_t d;
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 16;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    int8_t high[kBlock];
    Unpack<2, 32>(block.qs, 64, codes);
    Unpack<1, 32>(block.hmask, 32, high);
    for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<int8_t>((codes[i] | high[i] << 2) - 4);

    int8_t scale_low[16];
    int8_t scale_high[16];
    Unpack<4, 8>(block.scales, 8, scale_low);
    Unpack<2, 4>(block.scales + 8, 4, scale_high);
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 16; ++g) {
      scales[g] = d * static_cast<float>((scale_low[g] | scale_high[g] << 4) - 32);
    }
  }

  static constexpr SearchRange kSearch = {-4, 0.7f, 1.3f, 19};
  static constexpr int kLow = -32, kHigh = 31, kFull = -32;
  static constexpr float kStep = 1, kOffset = 0;
  static constexpr float kStarts[] = {0.9f, 1.0f, 1.1f};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestInteger<-4, 3, kGroup>(x, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitLeveled<Q3_K>(input);
    Block block;
    block.d = fit.d;
    int8_t codes[kBlock], high[kBlock], levels[16], high_levels[16];
    for (int i = 0; i < kBlock; ++i) {
      codes[i] = static_cast<int8_t>(fit.codes[i] + 4);
      high[i] = static_cast<int8_t>(codes[i] >> 2);
    }
    for (int g = 0; g < 16; ++g) {
      levels[g] = static_cast<int8_t>(fit.levels[g] + 32);
      high_levels[g] = static_cast<int8_t>(levels[g] >> 4);
    }
    Pack<2, 32>(codes, 64, block.qs);
    Pack<1, 32>(high, 32, block.hmask);
    Pack<4, 8>(levels, 8, block.scales);
    Pack<2, 4>(high_levels, 4, block.scales + 8);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ3_K = BlockFormat<Q3_K>("Q3_K", 11);

}  // namespace lockstep
