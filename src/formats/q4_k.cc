// Q4_K: 4-bit codes 0 .. 15 for 256 weights; each 32 have a 6-bit scale and minimum, times an f16
// each.
#include "formats/fit_affine.h"
#include "formats/k_scales.h"

namespace lockstep {
namespace {

struct Q4_K {
  struct Block {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t qs[128];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = true;

  static void Integers(const Block& block, int8_t* codes, float* scales, float* mins) {
    Unpack<4, 32>(block.qs, 128, codes);
    SuperScales(block.d, block.dmin, block.scales, scales, mins);
  }

  static constexpr int kMost = 15;
  static constexpr int kLevels = 63;

  static Block Fit(const FitInput& input) {
    const auto fit = FitAffineLeveled<Q4_K>(input);
    Block block;
    block.d = fit.d;
    block.dmin = fit.dmin;
    PackSuperScales(fit.scales, fit.mins, block.scales);
    Pack<4, 32>(fit.codes, 128, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ4_K = BlockFormat<Q4_K>("Q4_K", 12);

}  // namespace lockstep
