// Q6_K: 6-bit codes -32 .. 31 for 256 weights; each 16 have an 8-bit scale, times one f16.
#include "formats/fit.h"

namespace lockstep {
namespace {

struct Q6_K {
  struct Block {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 16;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    int8_t high[kBlock];
    Unpack<4, 64>(block.ql, 128, codes);
    Unpack<2, 32>(block.qh, 64, high);
    for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<int8_t>((codes[i] | high[i] << 4) - 32);
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 16; ++g) scales[g] = d * static_cast<float>(block.scales[g]);
  }

  static constexpr SearchRange kSearch = {-32, 0.94f, 1.06f, 19};
  static constexpr int kLow = -128, kHigh = 127, kFull = -128;
  static constexpr float kStep = 1, kOffset = 0;
  static constexpr float kStarts[] = {1.0f};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestInteger<-32, 31, kGroup>(x, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitLeveled<Q6_K>(input);
    Block block;
    block.d = fit.d;
    std::copy_n(fit.levels, 16, block.scales);
    int8_t codes[kBlock], high[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      codes[i] = static_cast<int8_t>(fit.codes[i] + 32);
      high[i] = static_cast<int8_t>(codes[i] >> 4);
    }
    Pack<4, 64>(codes, 128, block.ql);
    Pack<2, 32>(high, 64, block.qh);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ6_K = BlockFormat<Q6_K>("Q6_K", 14);

}  // namespace lockstep
