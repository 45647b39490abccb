// TQ1_0: ternary codes -1 0 1 and an f16 scale for 256 weights, five to a byte.
#include "formats/ternary.h"

namespace lockstep {
namespace {

struct TQ1_0 {
  // A byte holds the digits of a number in base 3, highest first, as the fraction number / 3^5 of
  // 256, rounded up: each multiplication by 3 moves the next digit into the bits above the byte. As
  // elsewhere the first digits of a chunk's bytes come first.
  struct Block {
    uint8_t qs[48];  // five digits a byte: a chunk of 32 bytes, then one of 16
    uint8_t qh[4];   // four digits a byte
    uint16_t d;
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void UnpackDigits(const uint8_t* in, int bytes, int digits, int8_t* codes) {
    for (int power = 1; digits > 0; --digits, power *= 3, codes += bytes) {
      for (int i = 0; i < bytes; ++i) {
        codes[i] = static_cast<int8_t>(((in[i] * power & 0xFF) * 3 >> 8) - 1);
      }
    }
  }

  static void PackDigits(const int8_t* codes, int bytes, int digits, uint8_t* out) {
    for (int i = 0; i < bytes; ++i) {
      int number = 0;
      for (int k = 0; k < 5; ++k) number = 3 * number + (k < digits ? codes[k * bytes + i] + 1 : 0);
      out[i] = static_cast<uint8_t>((number * 256 + 242) / 243);
    }
  }

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    UnpackDigits(block.qs, 32, 5, codes);
    UnpackDigits(block.qs + 32, 16, 5, codes + 160);
    UnpackDigits(block.qh, 4, 4, codes + 240);
    std::fill_n(scales, kBlock / kGroup, F16ToF32(block.d));
  }

  static Block Encode(const float* x) {
    Block block;
    block.d = F16Nearest(AbsMax(x, kBlock));
    int8_t codes[kBlock];
    RoundCodes(x, kBlock, 0, Inverse(F16ToF32(block.d)), -1, 1, codes);
    PackDigits(codes, 32, 5, block.qs);
    PackDigits(codes + 160, 16, 5, block.qs + 32);
    PackDigits(codes + 240, 4, 4, block.qh);
    return block;
  }

  static Block Fit(const FitInput& input) {
    const auto fit = FitTernary<TQ1_0>(input);
    Block block;
    block.d = fit.d;
    PackDigits(fit.codes, 32, 5, block.qs);
    PackDigits(fit.codes + 160, 16, 5, block.qs + 32);
    PackDigits(fit.codes + 240, 4, 4, block.qh);
    return block;
  }
};

}  // namespace

constinit const Format kFormatTQ1_0 = BlockFormat<TQ1_0>("TQ1_0", 34);

}  // namespace lockstep
