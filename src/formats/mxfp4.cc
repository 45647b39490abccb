// MXFP4: E2M1 numbers and an E8M0 scale for 32 weights (OCP Microscaling 1.0), codes doubled and
// scale halved.
#include "formats/code_tables.h"

namespace lockstep {
namespace {

struct MXFP4 {
  struct Block {
    uint8_t e;
    uint8_t qs[16];
  };
  static constexpr int kBlock = 32;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  // 2^(e - 128). Unlike in the specification 255 is no NaN here, as in the GGUF package.
  static float HalfScale(uint8_t e) {
    return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1u) << 23);
  }

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    Unpack<4, 16>(block.qs, 16, codes);
    MapCodes<kBlock>(kE2m1Doubled, codes);
    scales[0] = HalfScale(block.e);
  }

  // The scale is the specification's: the exponent of the largest weight less 2, that of the
  // largest E2M1 number.
  static Block Encode(const float* x) {
    const int exponent = static_cast<int>(std::bit_cast<uint32_t>(AbsMax(x, kBlock)) >> 23);
    Block block;
    block.e = static_cast<uint8_t>(std::max(exponent - 2, 0));
    // 2^(128 - e) in two steps: for e = 0 it is no f32.
    const float inverse = std::bit_cast<float>((254u - block.e) << 23);
    int8_t codes[kBlock];
    for (int i = 0; i < kBlock; ++i) codes[i] = NearestE2m1(x[i] * inverse * 2);
    Pack<4, 16>(codes, 16, block.qs);
    return block;
  }

  static Block Fit(const FitInput& input) {
    // The specification's exponent is one of three tried: a power of two more clips nothing, one
    // less is finer for the rest. From 253 on the largest codes are beyond f32.
    const int standard = std::clamp(input.exponent + 127 - 2, 1, 251);
    Block block;
    float least = FLT_MAX;
    int8_t best[kBlock] = {};
    block.e = static_cast<uint8_t>(standard);
    for (int e = standard - 1; e <= standard + 1; ++e) {
      const float scale = std::ldexp(HalfScale(static_cast<uint8_t>(e)), -input.exponent);
      int8_t indices[kBlock], codes[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        indices[i] = codes[i] = NearestE2m1(input.x[i] * Inverse(scale));
      }
      MapCodes<kBlock>(kE2m1Doubled, codes);
      const float error = ScaleError<kBlock>(input.x, input.w, codes, scale);
      if (!(error < least)) continue;
      least = error;
      block.e = static_cast<uint8_t>(e);
      std::copy_n(indices, kBlock, best);
    }
    Pack<4, 16>(best, 16, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatMXFP4 = BlockFormat<MXFP4>("MXFP4", 39);

}  // namespace lockstep
