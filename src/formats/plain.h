// Formats of single numbers: what their files share.
#pragma once

#include <cstring>

#include "formats/rows.h"

namespace lockstep {

// A format from a description of one number,
//   struct F16 {
//     using Stored = uint16_t;
//     static float Decode(Stored);
//     static Stored Encode(float);  // optional
//   };
template <typename Number>
constexpr Format PlainFormat(std::string_view name, uint32_t id) {
  using Stored = typename Number::Stored;
  Format format{};
  format.name = name;
  format.id = id;
  format.block = 1;
  format.block_bytes = sizeof(Stored);
  format.decode = [](const std::byte* in, int64_t blocks, float* out) {
    for (int64_t i = 0; i < blocks; ++i) {
      Stored stored;
      std::memcpy(&stored, in + i * sizeof(Stored), sizeof(Stored));
      out[i] = Number::Decode(stored);
    }
  };
  if constexpr (requires { Number::Encode(0.0f); }) {
    format.encode = [](const float* in, int64_t blocks, std::byte* out) {
      for (int64_t i = 0; i < blocks; ++i) {
        const Stored stored = Number::Encode(in[i]);
        std::memcpy(out + i * sizeof(Stored), &stored, sizeof(Stored));
      }
    };
  }
  return format;
}

}  // namespace lockstep
