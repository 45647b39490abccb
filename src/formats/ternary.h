// Fitting of TQ1_0 and TQ2_0: codes -1 0 1 and one f16 scale for a block.
#pragma once

#include "formats/fit.h"

namespace lockstep {

// As one group of the whole block, whatever the groups of the integer view are.
template <typename Codec>
struct TernaryCodec {
  static constexpr int kBlock = Codec::kBlock;
  static constexpr int kGroup = Codec::kBlock;
  // From the scale of ternary weights, which are met exactly, down to where half of a normal
  // distribution is not zero.
  static constexpr SearchRange kSearch = {1, 1.0f, 4.0f, 40};
  static void Nearest(const float* x, const float*, float inverse, int8_t* codes) {
    NearestInteger<-1, 1, kGroup>(x, inverse, codes);
  }
};

template <typename Codec>
inline SingleFit<TernaryCodec<Codec>> FitTernary(const FitInput& in) {
  return FitSingle<TernaryCodec<Codec>>(in);
}

}  // namespace lockstep
