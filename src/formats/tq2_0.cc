// TQ2_0: ternary codes -1 0 1 and an f16 scale for 256 weights, four to a byte; the fourth bit
// pattern is code 2.
#include "formats/ternary.h"

namespace lockstep {
namespace {

struct TQ2_0 {
  struct Block {
    uint8_t qs[64];
    uint16_t d;
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    Unpack<2, 32>(block.qs, 64, codes);
    for (int i = 0; i < kBlock; ++i) codes[i] -= 1;
    std::fill_n(scales, kBlock / kGroup, F16ToF32(block.d));
  }

  static Block Encode(const float* x) {
    Block block;
    block.d = F16Nearest(AbsMax(x, kBlock));
    int8_t codes[kBlock];
    RoundCodes(x, kBlock, 0, Inverse(F16ToF32(block.d)), -1, 1, codes);
    for (int8_t& code : codes) code += 1;
    Pack<2, 32>(codes, 64, block.qs);
    return block;
  }

  static Block Fit(const FitInput& input) {
    auto fit = FitTernary<TQ2_0>(input);
    Block block;
    block.d = fit.d;
    for (int8_t& code : fit.codes) code += 1;
    Pack<2, 32>(fit.codes, 64, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatTQ2_0 = BlockFormat<TQ2_0>("TQ2_0", 35);

}  // namespace lockstep
