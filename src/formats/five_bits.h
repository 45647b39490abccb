// The packing of Q5_0 and Q5_1: low nibbles as in Q4_0, and a word with the fifth bits.
#pragma once

#include "formats/fit.h"

namespace lockstep {

// high: [4], low: [16], codes: [32], 0 .. 31
inline void UnpackFiveBits(const uint8_t* high, const uint8_t* low, int8_t* codes) {
  int8_t fifth[32];
  Unpack<4, 16>(low, 16, codes);
  Unpack<1, 1>(high, 4, fifth);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<int8_t>(fifth[i] << 4);
}

// The inverse.
inline void PackFiveBits(const int8_t* codes, uint8_t* high, uint8_t* low) {
  int8_t fifth[32];
  for (int i = 0; i < 32; ++i) fifth[i] = static_cast<int8_t>(codes[i] >> 4);
  Pack<4, 16>(codes, 16, low);
  Pack<1, 1>(fifth, 4, high);
}

}  // namespace lockstep
