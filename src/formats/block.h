// Formats of blocks: what their files share.
//
// A file describes its block as a struct and writes the integer view of one block; the float view
// follows from it, because `scale * code + min` in f32 is what the GGUF formats mean, operation for
// operation.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/rows.h"
#include "tensor/half.h"

namespace lockstep {

static_assert(std::endian::native == std::endian::little,
              "blocks are read as little-endian structs");

struct FitInput;
// Sets `fit`, and `encode` where the format has no faster one (formats/fit.h).
template <typename Codec>
constexpr void AddFit(Format& format);

// A format from a description of its block,
//   struct Q4_0 {
//     struct Block {...};  // as in the file, without padding
//     static constexpr int kBlock = 32, kGroup = 32;
//     static constexpr bool kHasMin = false;
//     static void Integers(const Block&, int8_t* codes, float* scales, float* mins);
//     static Block Encode(const float* x);     // optional
//     static Block Fit(const FitInput& input);  // optional, see formats/fit.h
//     static constexpr bool kNeedsImportance = true;  // optional
//   };
template <typename Codec>
constexpr Format BlockFormat(std::string_view name, uint32_t id) {
  using Block = typename Codec::Block;
  Format format{};
  format.name = name;
  format.id = id;
  format.block = Codec::kBlock;
  format.block_bytes = sizeof(Block);
  format.group = Codec::kGroup;
  format.has_min = Codec::kHasMin;
  format.integers = [](const std::byte* in, int8_t* codes, float* scales, float* mins) {
    Block block;
    std::memcpy(&block, in, sizeof(Block));
    Codec::Integers(block, codes, scales, mins);
  };
  format.decode = [](const std::byte* in, int64_t blocks, float* out) {
    for (int64_t b = 0; b < blocks; ++b, in += sizeof(Block)) {
      Block block;
      std::memcpy(&block, in, sizeof(Block));
      int8_t codes[Codec::kBlock];
      float scales[Codec::kBlock / Codec::kGroup];
      float mins[Codec::kBlock / Codec::kGroup];
      Codec::Integers(block, codes, scales, mins);
      for (int i = 0; i < Codec::kBlock; ++i) {
        const float product = scales[i / Codec::kGroup] * static_cast<float>(codes[i]);
        *out++ = Codec::kHasMin ? product + mins[i / Codec::kGroup] : product;
      }
    }
  };
  if constexpr (requires(const float* x) { Codec::Encode(x); }) {
    format.encode = [](const float* in, int64_t blocks, std::byte* out) {
      for (int64_t b = 0; b < blocks; ++b, in += Codec::kBlock, out += sizeof(Block)) {
        const Block block = Codec::Encode(in);
        std::memcpy(out, &block, sizeof(Block));
      }
    };
  }
  if constexpr (requires(const FitInput& input) { Codec::Fit(input); }) {
    AddFit<Codec>(format);
  }
  return format;
}

// ---- Packed codes ----
//
// Nearly every format packs codes of `kBits` bits the same way: a chunk of `kChunk` bytes holds `8
// / kBits` runs of `kChunk` codes, the first run in the lowest bits of each byte. Chunks of one
// byte are plain bit order.

// in: [bytes], a multiple of kChunk; out: [bytes * 8 / kBits], each 0 .. 2^kBits - 1
template <int kBits, int kChunk>
void Unpack(const uint8_t* in, int bytes, int8_t* out) {
  constexpr int kMask = (1 << kBits) - 1;
  for (const uint8_t* end = in + bytes; in < end; in += kChunk) {
    for (int shift = 0; shift < 8; shift += kBits, out += kChunk) {
      for (int i = 0; i < kChunk; ++i) out[i] = static_cast<int8_t>(in[i] >> shift & kMask);
    }
  }
}

// The inverse of Unpack; bits of a code above kBits are dropped.
template <int kBits, int kChunk>
void Pack(const int8_t* in, int bytes, uint8_t* out) {
  constexpr int kMask = (1 << kBits) - 1;
  for (const uint8_t* end = out + bytes; out < end; out += kChunk) {
    std::fill_n(out, kChunk, uint8_t{0});
    for (int shift = 0; shift < 8; shift += kBits, in += kChunk) {
      for (int i = 0; i < kChunk; ++i) out[i] |= static_cast<uint8_t>((in[i] & kMask) << shift);
    }
  }
}

// codes[i] = table[codes[i]]
template <int kCodes>
void MapCodes(const int8_t* table, int8_t* codes) {
  for (int i = 0; i < kCodes; ++i) codes[i] = table[codes[i]];
}

// ---- Encoding ----

inline constexpr float kF16Max = 65504.0f;

// The nearest f16, never an infinity: what is larger becomes the largest.
inline uint16_t F16Nearest(float v) { return F32ToF16(std::clamp(v, -kF16Max, kF16Max)); }

// The smallest f16 that is not below `v`, within the finite ones.
inline uint16_t F16AtLeast(float v) {
  const uint16_t h = F16Nearest(v);
  if (!(F16ToF32(h) < v) || v > kF16Max) return h;
  return h & 0x8000 ? h - 1 : h + 1;
}

// The largest f16 that is not above `v`, within the finite ones.
inline uint16_t F16AtMost(float v) { return F16AtLeast(-v) ^ 0x8000; }

// The f16 next to `v`, away from zero. With it as a scale the largest code still reaches the
// largest weight, so no weight is further than half a step from its code, denormal scales included.
inline uint16_t F16Away(float v) {
  if (v == 0) return 0;  // -0 too: a block of zeros decodes to +0
  return v < 0 ? F16AtMost(v) : F16AtLeast(v);
}

// An f32 scale for codes up to 127 that reach `most` >= 0. It is 0 rather than denormal, whose few
// bits are no scale, and small enough for 127 times it to be finite.
inline float Scale127(float most) {
  const float scale = std::min(most / 127, 0x1.02p121f);
  return scale < std::numeric_limits<float>::min() ? 0.0f : scale;
}

// 1 / scale, or 0 where that is not finite: all codes of such a block are those of a zero weight.
inline float Inverse(float scale) {
  return std::abs(scale) >= std::numeric_limits<float>::min() ? 1.0f / scale : 0.0f;
}

// Reductions over x: [n] on the bits of the numbers, whose order is that of the numbers: unlike f32
// comparisons these may be reordered, so the compiler uses vectors.
inline float AbsMax(const float* x, int n) {
  int32_t most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(most);
}

// The element of largest magnitude, with its sign; of two, the negative one.
inline float Extreme(const float* x, int n) {
  uint32_t most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, std::rotl(std::bit_cast<uint32_t>(x[i]), 1));
  return std::bit_cast<float>(std::rotr(most, 1));
}

struct Bounds {
  float min;
  float max;
};
inline Bounds MinMax(const float* x, int n) {
  // Flipping the magnitude bits of negative numbers makes their order as integers the order of the
  // numbers.
  const auto flip = [](int32_t bits) { return bits ^ (bits >> 31 & 0x7FFFFFFF); };
  int32_t least = std::numeric_limits<int32_t>::max();
  int32_t most = std::numeric_limits<int32_t>::min();
  for (int i = 0; i < n; ++i) {
    const int32_t key = flip(std::bit_cast<int32_t>(x[i]));
    least = std::min(least, key);
    most = std::max(most, key);
  }
  return {std::bit_cast<float>(flip(least)), std::bit_cast<float>(flip(most))};
}

// The integer nearest to `v` within [low, high], ties to even; some integer there where v is NaN.
// |low|, |high| < 2^22.
inline int8_t RoundWithin(float v, float low, float high) {
  v = low < v ? v : low;
  v = v < high ? v : high;
  // At 1.5 * 2^23 the last bit of an f32 is worth 1, so the addition rounds, and vectorises where a
  // conversion may not.
  return static_cast<int8_t>(std::bit_cast<int32_t>(v + 0x1.8p23f) -
                             std::bit_cast<int32_t>(0x1.8p23f));
}

// codes[i] = (x[i] - min) * inverse, rounded, within [low, high]. x, codes: [n]
inline void RoundCodes(const float* x, int n, float min, float inverse, int low, int high,
                       int8_t* codes) {
  const auto least = static_cast<float>(low);
  const auto most = static_cast<float>(high);
  for (int i = 0; i < n; ++i) codes[i] = RoundWithin((x[i] - min) * inverse, least, most);
}

}  // namespace lockstep
