// Q5_K: 5-bit codes 0 .. 31 for 256 weights; each 32 have a 6-bit scale and minimum, times an f16
// each.
#include "formats/block.h"
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
};

}  // namespace

constinit const Format kFormatQ5_K = BlockFormat<Q5_K>("Q5_K", 13);

}  // namespace lockstep
