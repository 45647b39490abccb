// Non-linear 4-bit codes: the tables behind IQ4_NL, IQ4_XS, MXFP4 and NVFP4.
#pragma once

#include "formats/fit.h"

namespace lockstep {

// IQ4_NL and IQ4_XS, as published with ggml.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// Twice the numbers of E2M1 (OCP Microscaling 1.0): sign, two exponent bits, one mantissa bit.
inline constexpr int8_t kE2m1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// The index in `ascending`, [size], of the entry nearest to `v`; of two as near, the lower. 0 where
// v is NaN.
inline int8_t NearestIndex(const int8_t* ascending, int size, float v) {
  int index = 0;
  for (int i = 0; i + 1 < size; ++i) {
    index += v > static_cast<float>(ascending[i] + ascending[i + 1]) * 0.5f;
  }
  return static_cast<int8_t>(index);
}

// Index in kIq4Values and value nearest to x * inverse: the Nearest of IQ4_NL and IQ4_XS. x, codes:
// [32]
inline void NearestIq4(const float* x, float inverse, int8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = kIq4Values[NearestIndex(kIq4Values, 16, x[i] * inverse)];
}

// The inverse of MapCodes for kIq4Values. codes: [n]
inline void Iq4Indices(const int8_t* codes, int n, int8_t* indices) {
  for (int i = 0; i < n; ++i) indices[i] = NearestIndex(kIq4Values, 16, codes[i]);
}

// The 4-bit code of the E2M1 number nearest to v / 2.
inline int8_t NearestE2m1(float v) {
  const auto sign = static_cast<int8_t>(std::bit_cast<uint32_t>(v) >> 31 << 3);
  return static_cast<int8_t>(NearestIndex(kE2m1Doubled, 8, std::abs(v)) | sign);
}

}  // namespace lockstep
