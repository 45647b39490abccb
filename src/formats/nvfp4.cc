// NVFP4: E2M1 numbers for 64 weights, each 16 with an unsigned E4M3 scale; codes doubled and scales
// halved.
#include "formats/code_tables.h"

namespace lockstep {
namespace {

struct NVFP4 {
  struct Block {
    uint8_t d[4];
    uint8_t qs[32];
  };
  static constexpr int kBlock = 64;
  static constexpr int kGroup = 16;
  static constexpr bool kHasMin = false;

  // Half the E4M3 number (bias 7) without its sign bit. 0x7F, elsewhere NaN, and 0 are zero; 0xFF,
  // as in the GGUF package, counts as 480.
  static float HalfScale(uint8_t d) {
    if (d == 0x7F) return 0;
    const int exponent = d >> 3 & 0xF;
    const int mantissa = d & 7;
    // mantissa * 2^-9 below the normal numbers, else (8 + mantissa) * 2^(exponent - 10), times 1/2
    const int significand = exponent == 0 ? mantissa : 8 + mantissa;
    return static_cast<float>(significand << std::max(exponent - 1, 0)) * 0x1p-10f;
  }

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    Unpack<4, 8>(block.qs, 32, codes);
    MapCodes<kBlock>(kE2m1Doubled, codes);
    for (int g = 0; g < 4; ++g) scales[g] = HalfScale(block.d[g]);
  }

  // The E4M3 number nearest to `v` >= 0, at most 448.
  static uint8_t NearestScale(float v) {
    v = v < 448.0f ? v : 448.0f;
    if (v < 0x1p-6f) return static_cast<uint8_t>(RoundWithin(v * 0x1p9f, 0, 8));
    // Rounds the mantissa to 3 bits, ties to even; a carry runs into the exponent.
    const auto bits = std::bit_cast<uint32_t>(v);
    const uint32_t rounded = (bits + 0x7FFFF + (bits >> 20 & 1)) >> 20;
    return static_cast<uint8_t>(rounded - (120u << 3));
  }

  static Block Encode(const float* x) {
    Block block;
    int8_t codes[kBlock];
    for (int g = 0; g < 4; ++g) {
      const float* group = x + kGroup * g;
      block.d[g] = NearestScale(AbsMax(group, kGroup) / 6);
      const float inverse = Inverse(HalfScale(block.d[g]));
      for (int i = 0; i < kGroup; ++i) codes[kGroup * g + i] = NearestE2m1(group[i] * inverse);
    }
    Pack<4, 8>(codes, 32, block.qs);
    return block;
  }

  static Block Fit(const FitInput& input) {
    Block block;
    int8_t best[kBlock] = {};
    for (int g = 0; g < 4; ++g) {
      const float* x = input.x + kGroup * g;
      const float* w = input.w + kGroup * g;
      // From the scale at which the largest weight is clipped to 4, to that at which it is stored
      // as 4 and not as 6.
      const float most = std::ldexp(AbsMax(x, kGroup), input.exponent);
      const int first = NearestScale(most * (1.0f / 9));
      const int last = NearestScale(most * (1.0f / 3.5f));
      float least = FLT_MAX;
      block.d[g] = static_cast<uint8_t>(first);
      for (int d = first; d <= last; ++d) {
        const float scale = std::ldexp(HalfScale(static_cast<uint8_t>(d)), -input.exponent);
        int8_t indices[kGroup], codes[kGroup];
        for (int i = 0; i < kGroup; ++i) {
          indices[i] = codes[i] = NearestE2m1(x[i] * Inverse(scale));
        }
        MapCodes<kGroup>(kE2m1Doubled, codes);
        const float error = ScaleError<kGroup>(x, w, codes, scale);
        if (!(error < least)) continue;
        least = error;
        block.d[g] = static_cast<uint8_t>(d);
        std::copy_n(indices, kGroup, best + kGroup * g);
      }
    }
    Pack<4, 8>(best, 32, block.qs);
    return block;
  }
};

}  // namespace

constinit const Format kFormatNVFP4 = BlockFormat<NVFP4>("NVFP4", 40);

}  // namespace lockstep
