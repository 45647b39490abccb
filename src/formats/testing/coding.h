// For tests of formats: rows encoded and decoded whole, and rows that no encoder is meant for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "formats/format.h"

namespace lockstep::test {

// One block length that every format divides.
inline constexpr int kRowSize = 256;

inline std::vector<std::byte> Encode(const Format& format, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> out(static_cast<size_t>(format.RowBytes(n)));
  format.encode(x.data(), n / format.block, out.data());
  return out;
}

inline std::vector<float> Decode(const Format& format, const std::vector<std::byte>& data) {
  const auto blocks = static_cast<int64_t>(data.size()) / format.block_bytes;
  std::vector<float> out(static_cast<size_t>(blocks * format.block));
  format.decode(data.data(), blocks, out.data());
  return out;
}

// NaN and infinities among zeros, ones and their like. They are refused before an encoder sees them; encoders must only not
// meet undefined behaviour.
inline std::vector<std::vector<float>> RowsWithNanAndInfinity() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> rows;
  for (float special : {kNan, -kNan, kInf, -kInf}) {
    for (float other : {0.0f, 1.0f, special, -special}) {
      std::vector<float>& x = rows.emplace_back(kRowSize, other);
      for (size_t i = 5; i < kRowSize; i += 16) x[i] = special;
    }
  }
  return rows;
}

}  // namespace lockstep::test
