// Q8_K: 8-bit codes and an f32 scale for 256 weights, and sums of 16 codes each, which decoding
// does not need.
#include <numeric>

#include "formats/block.h"

namespace lockstep {
namespace {

struct Q8_K {
  struct Block {
    float d;
    int8_t qs[256];
    int16_t sums[16];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    std::copy_n(block.qs, kBlock, codes);
    std::fill_n(scales, kBlock / kGroup, block.d);
  }

  static Block Encode(const float* x) {
    Block block;
    block.d = Scale127(AbsMax(x, kBlock));
    RoundCodes(x, kBlock, 0, Inverse(block.d), -127, 127, block.qs);
    for (int g = 0; g < 16; ++g) {
      const int8_t* codes = block.qs + 16 * g;
      block.sums[g] = static_cast<int16_t>(std::accumulate(codes, codes + 16, 0));
    }
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ8_K = BlockFormat<Q8_K>("Q8_K", 15);

}  // namespace lockstep
