// The codebooks of the IQ formats: each entry is the magnitudes (of IQ1: the values) of 8 or 4
// consecutive weights. They are part of the file formats, as published with ggml.
#pragma once

#include <array>
#include <cstdint>

#include "formats/block.h"

namespace lockstep {

template <int kEntries, int kWidth>
using Grid = std::array<std::array<int8_t, kWidth>, kEntries>;

extern const Grid<2048, 8> kIq1Grid;    // -1 0 1, for IQ1_S and IQ1_M
extern const Grid<256, 8> kIq2XxsGrid;  // 8 25 43
extern const Grid<512, 8> kIq2XsGrid;   // 8 25 43
extern const Grid<1024, 8> kIq2SGrid;   // 8 25 43
extern const Grid<256, 4> kIq3XxsGrid;  // 4 12 .. 52 62
extern const Grid<512, 4> kIq3SGrid;    // 1 3 .. 15

// The signs of 8 weights from 7 bits: a set bit is a minus, and the eighth bit makes their number
// even.
inline uint8_t EvenSigns(uint32_t bits) {
  bits &= 0x7F;
  return static_cast<uint8_t>(bits | (std::popcount(bits) & 1) << 7);
}

// codes[i] = magnitudes[i], negative where bit i of `signs` is set. magnitudes: [8]; codes: [8],
// out
inline void ApplySigns(const int8_t* magnitudes, uint8_t signs, int8_t* codes) {
  for (int i = 0; i < 8; ++i) {
    const int minus = -(signs >> i & 1);
    codes[i] = static_cast<int8_t>((magnitudes[i] ^ minus) - minus);
  }
}

// The same for 8 weights of two entries of 4.
inline void SignedPair(const std::array<int8_t, 4>& first, const std::array<int8_t, 4>& second,
                       uint8_t signs, int8_t* codes) {
  int8_t magnitudes[8];
  std::copy_n(first.data(), 4, magnitudes);
  std::copy_n(second.data(), 4, magnitudes + 4);
  ApplySigns(magnitudes, signs, codes);
}

// Ternary values shifted by 1/8, down where `down` is not 0, in eighths: codes[i] = 8 * values[i]
// +- 1.
inline void ShiftedEighths(const std::array<int8_t, 8>& values, int down, int8_t* codes) {
  const int shift = down ? -1 : 1;
  for (int i = 0; i < 8; ++i) codes[i] = static_cast<int8_t>(8 * values[i] + shift);
}

// The scales of IQ2_XS and IQ2_S: d / 4 times a 4-bit number plus 1/2. packed: [8], scales: [16],
// out
inline void HalfStepScales(float d, const uint8_t* packed, float* scales) {
  int8_t steps[16];
  Unpack<4, 1>(packed, 8, steps);
  for (int g = 0; g < 16; ++g) scales[g] = d * (static_cast<float>(steps[g]) + 0.5f) * 0.25f;
}

}  // namespace lockstep
