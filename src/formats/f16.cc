// F16: IEEE binary16. The conversions equal those of tensor/half.h but have no branches, so their
// loops use vectors.
#include <algorithm>
#include <bit>

#include "formats/plain.h"

namespace lockstep {
namespace {

struct F16 {
  using Stored = uint16_t;

  static float Decode(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(h & 0x7FFF) << 13;
    const uint32_t normal = magnitude + (112u << 23);
    const uint32_t special = magnitude | 0x7F800000;
    // 2^-14 + mantissa * 2^-24, less 2^-14
    const auto denormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f);
    const uint32_t finite = magnitude < (1u << 23) ? denormal : normal;
    return std::bit_cast<float>(sign | (magnitude < (31u << 23) ? finite : special));
  }

  // Finite numbers stay finite: 65520 and above become the largest, 65504.
  static uint16_t Encode(float v) {
    const auto bits = std::bit_cast<uint32_t>(v);
    const uint32_t sign = bits >> 16 & 0x8000;
    const auto magnitude = static_cast<int32_t>(bits & 0x7FFFFFFF);
    const int32_t within = std::min(magnitude, 0x477FE000);
    const int32_t normal = (within + 0xFFF + (within >> 13 & 1) - 0x38000000) >> 13;
    // Below 2^-14 adding 0.5 puts the last bit of the f16 at the last bit of the f32, so the
    // addition rounds.
    const int32_t denormal =
        std::bit_cast<int32_t>(std::bit_cast<float>(std::min(within, 0x38800000)) + 0.5f) -
        0x3F000000;
    const int32_t special =
        0x7C00 | (magnitude > 0x7F800000 ? 0x200 : 0) | (magnitude >> 13 & 0x3FF);
    const int32_t finite = within < 0x38800000 ? denormal : normal;
    return static_cast<uint16_t>(sign | (magnitude < 0x7F800000 ? finite : special));
  }
};

}  // namespace

constinit const Format kFormatF16 = PlainFormat<F16>("F16", 1);

}  // namespace lockstep
