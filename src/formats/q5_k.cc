// Q5_K: 5-bit codes 0 .. 31 for 256 weights; each 32 have a 6-bit scale and minimum, times an f16
// each.
#include "formats/fit_affine.h"
#include "formats/k_scales.h"

namespace lockstep {
namespace {

struct Q5_K {
  struct Block {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = true;

  static void Integers(const Block& block, int8_t* codes, float* scales, float* mins) {
    int8_t high[kBlock];
    Unpack<4, 32>(block.qs, 128, codes);
    Unpack<1, 32>(block.qh, 32, high);
    for (int i = 0; i < kBlock; ++i) codes[i] |= static_cast<int8_t>(high[i] << 4);
    SuperScales(block.d, block.dmin, block.scales, scales, mins);
  }

  static constexpr int kMost = 31;
  static constexpr int kLevels = 63;

  static Block Fit(const FitInput& input) {
    const auto fit = FitAffineLeveled<Q5_K>(input);
    Block block;
    block.d = fit.d;
    block.dmin = fit.dmin;
    PackSuperScales(fit.scales, fit.mins, block.scales);
    int8_t high[kBlock];
    for (int i = 0; i < kBlock; ++i) high[i] = static_cast<int8_t>(fit.codes[i] >> 4);
    Pack<4, 32>(fit.codes, 128, block.qs);
    Pack<1, 32>(high, 32, block.qh);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ5_K = BlockFormat<Q5_K>("Q5_K", 13);

}  // namespace lockstep
