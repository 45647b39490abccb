// IQ3_XXS: 256 weights in fours of an 8-bit grid index and eights of 7 sign bits; each 32 have a
// 4-bit scale, times one f16.
#include "formats/grid_search.h"

namespace lockstep {
namespace {

struct IQ3_XXS {
  struct Block {
    uint16_t d;
    uint8_t qs[64];
    uint8_t signs[8][4];  // four times 7 sign bits, then the scale
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    const float d = F16ToF32(block.d);
    const uint8_t* index = block.qs;
    for (int g = 0; g < 8; ++g) {
      uint32_t signs;
      std::memcpy(&signs, block.signs[g], sizeof(signs));
      scales[g] = d * (static_cast<float>(signs >> 28) + 0.5f) * 0.5f;
      for (int k = 0; k < 4; ++k, index += 2, codes += 8) {
        SignedPair(kIq3XxsGrid[index[0]], kIq3XxsGrid[index[1]], EvenSigns(signs >> 7 * k), codes);
      }
    }
  }

  static constexpr bool kNeedsImportance = true;
  static constexpr SearchRange kSearch = {62, 0.8f, 1.25f, 17};
  static constexpr int kLow = 0, kHigh = 15, kFull = 15;
  static constexpr float kStep = 0.5f, kOffset = 0.25f;
  static constexpr float kStarts[] = {0.9f, 1.0f, 1.1f};
  static void Nearest(const float* x, const float* w, float inverse, int8_t* codes) {
    NearestEntries<4, kGroup>(Iq3XxsSearch(), x, w, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    float magnitudes[kBlock];
    uint8_t signs[32];
    SplitSigns(input.x, input.w, SignSet::kEven, magnitudes, signs);
    const auto fit = FitLeveled<IQ3_XXS>({magnitudes, input.w, input.exponent});
    Block block;
    block.d = fit.d;
    for (int k = 0; k < 64; ++k) {
      block.qs[k] = static_cast<uint8_t>(Iq3XxsSearch().Index(fit.codes + 4 * k));
    }
    for (int g = 0; g < 8; ++g) {
      auto packed = static_cast<uint32_t>(fit.levels[g]) << 28;
      for (int k = 0; k < 4; ++k) {
        packed |= static_cast<uint32_t>(signs[4 * g + k] & 0x7F) << 7 * k;
      }
      std::memcpy(block.signs[g], &packed, sizeof(packed));
    }
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ3_XXS = BlockFormat<IQ3_XXS>("IQ3_XXS", 18);

}  // namespace lockstep
