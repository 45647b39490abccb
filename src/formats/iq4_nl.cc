// IQ4_NL: 4-bit indices of a fixed table of 16 codes and an f16 scale for 32 weights.
#include "formats/code_tables.h"

namespace lockstep {
namespace {

struct IQ4_NL {
  struct Block {
    uint16_t d;
    uint8_t qs[16];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    Unpack<4, 16>(block.qs, 16, codes);
    MapCodes<kBlock>(kIq4Values, codes);
    scales[0] = F16ToF32(block.d);
  }

  // The weight of largest magnitude gets code -127, whatever its sign. The table has no zero, so a
  // block too small for an f16 scale takes scale 0 rather than the least one.
  static Block Encode(const float* x) {
    Block block;
    block.d = F16Nearest(Extreme(x, kBlock) / -127);
    const float inverse = Inverse(F16ToF32(block.d));
    int8_t codes[kBlock];
    for (int i = 0; i < kBlock; ++i) codes[i] = NearestIndex(kIq4Values, 16, x[i] * inverse);
    Pack<4, 16>(codes, 16, block.qs);
    return block;
  }

  static constexpr SearchRange kSearch = {-127, 0.8f, 1.2f, 25};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestIq4(x, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitSingle<IQ4_NL>(input);
    Block block;
    block.d = fit.d;
    int8_t indices[kBlock];
    Iq4Indices(fit.codes, kBlock, indices);
    Pack<4, 16>(indices, 16, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ4_NL = BlockFormat<IQ4_NL>("IQ4_NL", 20);

}  // namespace lockstep
