// The scales and minimums of Q4_K and Q5_K.
#pragma once

#include <cstdint>

#include "tensor/half.h"

namespace lockstep {

// Eight 6-bit scales and eight 6-bit minimums in 12 bytes, times the f16 `d` and `dmin`. Those of
// groups 0 .. 3 lie in the low 6 bits of bytes 0 .. 3 and 4 .. 7; those of groups 4 .. 7 have their
// low 4 bits in bytes 8 .. 11 (scale in the low nibble, minimum in the high one) and their high 2
// bits at the top of bytes 0 .. 3 and 4 .. 7. scales, mins: [8], out; the minimums are subtracted
// from weights, so `mins` are negated.
inline void SuperScales(uint16_t d, uint16_t dmin, const uint8_t* packed, float* scales,
                        float* mins) {
  const float scale = F16ToF32(d);
  const float min = F16ToF32(dmin);
  for (int g = 0; g < 4; ++g) {
    scales[g] = scale * static_cast<float>(packed[g] & 0x3F);
    mins[g] = -(min * static_cast<float>(packed[4 + g] & 0x3F));
    scales[4 + g] = scale * static_cast<float>((packed[8 + g] & 0x0F) | (packed[g] >> 6 << 4));
    mins[4 + g] = -(min * static_cast<float>(packed[8 + g] >> 4 | (packed[4 + g] >> 6 << 4)));
  }
}

// The inverse for the levels: scales, mins: [8], 0 .. 63; packed: [12], out.
inline void PackSuperScales(const int8_t* scales, const int8_t* mins, uint8_t* packed) {
  for (int g = 0; g < 4; ++g) {
    const int high_scale = scales[4 + g], high_min = mins[4 + g];
    packed[g] = static_cast<uint8_t>(scales[g] | high_scale >> 4 << 6);
    packed[4 + g] = static_cast<uint8_t>(mins[g] | high_min >> 4 << 6);
    packed[8 + g] = static_cast<uint8_t>((high_scale & 0x0F) | (high_min & 0x0F) << 4);
  }
}

}  // namespace lockstep
