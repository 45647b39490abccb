// Q8_1: 8-bit codes and an f32 scale for 32 weights, and the sum of the weights, which decoding
// does not need.
#include <cfloat>
#include <numeric>

#include "formats/block.h"

namespace lockstep {
namespace {

struct Q8_1 {
  struct Block {
    float d;
    float sum;  // d times the sum of the codes
    int8_t qs[32];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    std::copy_n(block.qs, kBlock, codes);
    scales[0] = block.d;
  }

  static Block Encode(const float* x) {
    Block block;
    block.d = Scale127(AbsMax(x, kBlock));
    RoundCodes(x, kBlock, 0, Inverse(block.d), -127, 127, block.qs);
    const auto sum = static_cast<float>(std::accumulate(block.qs, block.qs + kBlock, 0));
    block.sum = std::clamp(block.d * sum, -FLT_MAX, FLT_MAX);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ8_1 = BlockFormat<Q8_1>("Q8_1", 9);

}  // namespace lockstep
