// Q8_0: 8-bit codes and an f16 scale for 32 weights.
#include "formats/fit.h"

namespace lockstep {
namespace {

struct Q8_0 {
  struct Block {
    uint16_t d;
    int8_t qs[32];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    std::copy_n(block.qs, kBlock, codes);
    scales[0] = F16ToF32(block.d);
  }

  static Block Encode(const float* x) {
    Block block;
    block.d = F16AtLeast(AbsMax(x, kBlock) / 127);
    RoundCodes(x, kBlock, 0, Inverse(F16ToF32(block.d)), -127, 127, block.qs);
    return block;
  }

  static constexpr SearchRange kSearch = {127, 0.99f, 1.01f, 9};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestInteger<-127, 127, kGroup>(x, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitSingle<Q8_0>(input);
    Block block;
    block.d = fit.d;
    std::copy_n(fit.codes, kBlock, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatQ8_0 = BlockFormat<Q8_0>("Q8_0", 8);

}  // namespace lockstep
