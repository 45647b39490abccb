// BF16: the upper half of an IEEE binary32.
#include <algorithm>
#include <bit>

#include "formats/plain.h"
#include "tensor/half.h"

namespace lockstep {
namespace {

struct Bf16 {
  using Stored = uint16_t;
  static float Decode(uint16_t h) { return Bf16ToF32(h); }

  // Nearest, ties to even; finite numbers stay finite: those that would round to infinity become
  // the largest.
  static uint16_t Encode(float v) {
    const auto bits = std::bit_cast<uint32_t>(v);
    const auto magnitude = static_cast<int32_t>(bits & 0x7FFFFFFF);
    const int32_t within = std::min(magnitude, 0x7F7F0000);
    const int32_t rounded = (within + 0x7FFF + (within >> 16 & 1)) >> 16;
    const int32_t special = magnitude >> 16 | (magnitude > 0x7F800000 ? 0x40 : 0);
    return static_cast<uint16_t>((bits >> 16 & 0x8000) |
                                 (magnitude < 0x7F800000 ? rounded : special));
  }
};

}  // namespace

constinit const Format kFormatBF16 = PlainFormat<Bf16>("BF16", 30);

}  // namespace lockstep
