// IQ2_XXS: 256 weights in eights of an 8-bit grid index and 7 sign bits; each 32 have a 4-bit
// scale, times one f16.
#include "formats/grid_search.h"

namespace lockstep {
namespace {

struct IQ2_XXS : Iq2Levels {
  struct Block {
    uint16_t d;
    struct {
      uint8_t index[4];
      uint8_t signs[4];  // four times 7 sign bits, then the scale
    } groups[8];
  };
  static constexpr int kBlock = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasMin = false;

  static void Integers(const Block& block, int8_t* codes, float* scales, float*) {
    const float d = F16ToF32(block.d);
    for (int g = 0; g < 8; ++g) {
      uint32_t signs;
      std::memcpy(&signs, block.groups[g].signs, sizeof(signs));
      scales[g] = d * (static_cast<float>(signs >> 28) + 0.5f) * 0.25f;
      for (int k = 0; k < 4; ++k, codes += 8) {
        ApplySigns(kIq2XxsGrid[block.groups[g].index[k]].data(), EvenSigns(signs >> 7 * k), codes);
      }
    }
  }

  static void Nearest(const float* x, const float* w, float inverse, int8_t* codes) {
    NearestEntries<8, kGroup>(Iq2XxsSearch(), x, w, inverse, codes);
  }

  static Block Fit(const FitInput& input) {
    float magnitudes[kBlock];
    uint8_t signs[32];
    SplitSigns(input.x, input.w, SignSet::kEven, magnitudes, signs);
    const auto fit = FitLeveled<IQ2_XXS>({magnitudes, input.w, input.exponent});
    Block block;
    block.d = fit.d;
    for (int g = 0; g < 8; ++g) {
      auto packed = static_cast<uint32_t>(fit.levels[g]) << 28;
      for (int k = 0; k < 4; ++k) {
        const int at = 4 * g + k;
        block.groups[g].index[k] = static_cast<uint8_t>(Iq2XxsSearch().Index(fit.codes + 8 * at));
        packed |= static_cast<uint32_t>(signs[at] & 0x7F) << 7 * k;
      }
      std::memcpy(block.groups[g].signs, &packed, sizeof(packed));
    }
    return block;
  }
};

}  // namespace

constinit const Format kFormatIQ2_XXS = BlockFormat<IQ2_XXS>("IQ2_XXS", 16);

}  // namespace lockstep
