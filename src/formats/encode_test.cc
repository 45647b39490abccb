// Encoders: error bounds derived from the step, and what must hold for any finite input.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/rows.h"
#include "formats/testing/coding.h"
#include "tensor/half.h"

namespace lockstep {
namespace {

using test::Decode;
using test::Encode;

constexpr int kSize = test::kRowSize;

std::vector<const Format*> Encoders() {
  std::vector<const Format*> encoders;
  for (const Format* format : AllFormats()) {
    if (format->encode != nullptr) encoders.push_back(format);
  }
  return encoders;
}

struct Pattern {
  std::string name;
  std::vector<float> x;
};

// Blocks that have broken encoders: zeros, the ends of the range of f32, one giant among dwarfs,
// constants.
std::vector<Pattern> HostilePatterns() {
  const auto make = [](const char* name, const std::function<float(int)>& at) {
    Pattern pattern{name, std::vector<float>(kSize)};
    for (int i = 0; i < kSize; ++i) pattern.x[static_cast<size_t>(i)] = at(i);
    return pattern;
  };
  const auto sign = [](int i) { return i % 3 == 1 ? -1.0f : 1.0f; };
  std::vector<Pattern> patterns = {
      make("zeros", [](int) { return 0.0f; }),
      make("minus zeros", [](int) { return -0.0f; }),
      make("the largest", [](int) { return FLT_MAX; }),
      make("the least", [](int) { return -FLT_MAX; }),
      make("both ends", [&](int i) { return sign(i) * FLT_MAX; }),
      make("a giant among dwarfs", [](int i) { return i % 32 == 7 ? 3e38f : 1e-3f; }),
      make("a giant among zeros", [](int i) { return i % 32 == 7 ? -3e38f : 0.0f; }),
      make("around the largest f16", [](int i) { return 65504.0f + static_cast<float>(i); }),
      make("a constant", [](int) { return 1000.3f; }),
      make("a negative constant", [](int) { return -1000.3f; }),
      make("a ramp", [](int i) { return static_cast<float>(i) - 100.5f; }),
  };
  for (float size : {3e38f, 1e30f, 1e5f, 1e-11f, 1e-30f, 1e-38f, FLT_MIN, FLT_TRUE_MIN}) {
    patterns.push_back(make("alternating", [&](int i) { return sign(i) * size; }));
    patterns.push_back(make("one of a size", [&](int i) { return i % 32 == 31 ? size : 0.0f; }));
    patterns.push_back(
        make("a ramp to a size", [&](int i) { return size * (static_cast<float>(i) / kSize); }));
    patterns.back().name += " " + std::to_string(size);
  }
  return patterns;
}

std::vector<float> Normal(std::mt19937& random, float size, float mean) {
  std::normal_distribution<float> normal(mean, 1.0f);
  std::vector<float> x(kSize);
  for (float& v : x) v = normal(random) * size;
  return x;
}

TEST(Encode, OfFiniteNumbersDecodesToFiniteNumbers) {
  for (const Format* format : Encoders()) {
    for (const Pattern& pattern : HostilePatterns()) {
      for (float v : Decode(*format, Encode(*format, pattern.x))) {
        ASSERT_TRUE(std::isfinite(v)) << format->name << ": " << pattern.name;
      }
    }
  }
}

TEST(Encode, OfZerosDecodesToExactZeros) {
  for (const Format* format : Encoders()) {
    for (float zero : {0.0f, -0.0f}) {
      for (float v : Decode(*format, Encode(*format, std::vector<float>(kSize, zero)))) {
        ASSERT_EQ(v, 0.0f) << format->name;
      }
    }
  }
}

TEST(Encode, OfABlockDependsOnThatBlockOnly) {
  std::mt19937 random(1);
  const std::vector<float> x = Normal(random, 1, 0.5f);
  for (const Format* format : Encoders()) {
    const std::vector<std::byte> whole = Encode(*format, x);
    std::vector<std::byte> parts;
    for (auto at = x.begin(); at != x.end(); at += format->block) {
      const std::vector<std::byte> part =
          Encode(*format, std::vector<float>(at, at + format->block));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(whole, parts) << format->name;
  }
}

TEST(Encode, WritesNothingBeyondItsBlocks) {
  constexpr auto kFence = static_cast<std::byte>(0xA5);
  for (const Format* format : Encoders()) {
    std::vector<std::byte> out(static_cast<size_t>(format->RowBytes(kSize)) + 16, kFence);
    const std::vector<float> x(kSize, -3.5f);
    // Off by one: blocks need no alignment.
    format->encode(x.data(), kSize / format->block, out.data() + 1);
    EXPECT_EQ(out.front(), kFence) << format->name;
    for (size_t i = out.size() - 15; i < out.size(); ++i) EXPECT_EQ(out[i], kFence) << format->name;
  }
}

TEST(Encode, SurvivesNanAndInfinity) {
  for (const Format* format : Encoders()) {
    for (const std::vector<float>& x : test::RowsWithNanAndInfinity()) {
      EXPECT_EQ(Decode(*format, Encode(*format, x)).size(), x.size()) << format->name;
    }
  }
}

// ---- Error bounds ----
//
// With s the scale of a group, every weight is within `steps` * s of its decoded value: half a step
// where the codes enclose the weights, more where they do not:
//   Q4_0, Q5_0   the extreme takes the one more code on the negative side; as large a weight of the
//                other sign is one step beyond its last code
//   IQ4_NL       from 113, the last code, to 127 it is 14 steps, more than half of any gap (24); the
//                scale is a nearest f16, so 127 itself may be off by 2^-11
//   MXFP4        the largest weight is below 8 * 2^e, 16 in half scales, and the last code is 12
//   NVFP4        half of the widest gap, 8 to 12, is 2; rounding the scale to 4 bits leaves the
//                largest weight within 12 * (1 + 1/16) < 14
// The reciprocal, the product and the sum with a minimum are rounded; each such rounding is below
// 2^-23 of the largest code's value. A scale that is rounded to the nearest f16, not away from
// zero, may be 0 or coarse below 2^-14: `floor` is what that costs, the last code times half the
// least scale.
struct Bound {
  const char* name;
  double steps;
  double floor;
  double range;  // the scale is the magnitude (with a minimum: the extent) of the weights over this
};
constexpr Bound kBounds[] = {
    {"Q4_0", 1.0, 0, 8},
    {"Q4_1", 0.5, 0, 15},
    {"Q5_0", 1.0, 0, 16},
    {"Q5_1", 0.5, 0, 31},
    {"Q8_0", 0.5, 0, 127},
    {"Q8_1", 0.5, 127 * 0x1p-126, 127},
    {"Q8_K", 0.5, 127 * 0x1p-126, 127},
    {"IQ4_NL", 14 + 127 * 0x1p-11, 127 * 0x1p-25, 127},
    {"TQ1_0", 0.5, 0x1p-25, 1},
    {"TQ2_0", 0.5, 0x1p-25, 1},
    {"MXFP4", 4, 0, 8},
    {"NVFP4", 2, 6 * 0x1p-10, 12},
};

void ExpectWithin(const Bound& bound, const std::vector<float>& x) {
  const Format& format = *FindFormat(bound.name);
  const std::vector<std::byte> data = Encode(format, x);
  const std::vector<float> decoded = Decode(format, data);
  std::vector<int8_t> codes(static_cast<size_t>(format.block));
  std::vector<float> scales(static_cast<size_t>(format.block / format.group));
  std::vector<float> mins(scales.size(), 0.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t at = i % static_cast<size_t>(format.block);
    if (at == 0) {
      const size_t b = i / static_cast<size_t>(format.block);
      format.integers(data.data() + b * static_cast<size_t>(format.block_bytes), codes.data(),
                      scales.data(), mins.data());
    }
    const size_t g = at / static_cast<size_t>(format.group);
    const double scale = std::abs(scales[g]);
    const double largest = 128 * scale + std::abs(mins[g]);
    const double allowed = bound.steps * scale + bound.floor + largest * 0x1p-22;
    ASSERT_LE(std::abs(static_cast<double>(x[i]) - decoded[i]), allowed)
        << bound.name << " weight " << i << " of " << x[i] << ", scale " << scale;
  }
}

TEST(Encode, StaysWithinItsStep) {
  std::mt19937 random(3);
  for (const Bound& bound : kBounds) {
    for (int round = 0; round < 200; ++round) {
      for (float size : {1e3f, 1.0f, 1e-2f, 1e-4f, 1e-6f, 1e-7f, 1e-8f, 1e-20f, 1e-37f, 1e-42f}) {
        // NVFP4 ends at 6 * 448.
        if (std::string_view(bound.name) == "NVFP4" && size > 100) continue;
        ExpectWithin(bound, Normal(random, size, 0));
        ExpectWithin(bound, Normal(random, size, 3));
        ExpectWithin(bound, Normal(random, size, -40));
      }
    }
  }
}

TEST(Encode, StaysWithinItsStepOnConstantsAndOutliers) {
  std::mt19937 random(4);
  for (const Bound& bound : kBounds) {
    for (float size : {900.3f, 1.0f, 0.1f, 1e-5f, 3e-8f}) {
      ExpectWithin(bound, std::vector<float>(kSize, size));
      ExpectWithin(bound, std::vector<float>(kSize, -size));
      std::vector<float> x = Normal(random, size / 1000, 0);
      for (size_t i = 3; i < kSize; i += 32) x[i] = size;
      ExpectWithin(bound, x);
      for (size_t i = 9; i < kSize; i += 32) x[i] = -size;
      ExpectWithin(bound, x);
    }
  }
}

// The codes that an encoder may give, where they are not all integers between two.
const std::vector<int> kIq4Codes = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
const std::vector<int> kE2m1Codes = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};

std::vector<int> Codes(int low, int high) {
  std::vector<int> codes;
  for (int code = low; code <= high; ++code) codes.push_back(code);
  return codes;
}

// Given the scale and minimum, no other code decodes nearer to the weight (but for rounding at a
// tie).
TEST(Encode, ChoosesTheNearestCode) {
  const std::pair<const char*, std::vector<int>> kCases[] = {
      {"Q4_0", Codes(-8, 7)},     {"Q4_1", Codes(0, 15)},     {"Q5_0", Codes(-16, 15)},
      {"Q5_1", Codes(0, 31)},     {"Q8_0", Codes(-127, 127)}, {"Q8_1", Codes(-127, 127)},
      {"Q8_K", Codes(-127, 127)}, {"TQ1_0", Codes(-1, 1)},    {"TQ2_0", Codes(-1, 1)},
      {"IQ4_NL", kIq4Codes},      {"MXFP4", kE2m1Codes},      {"NVFP4", kE2m1Codes}};
  std::mt19937 random(12);
  for (const auto& [name, allowed] : kCases) {
    const Format& format = *FindFormat(name);
    std::vector<int8_t> codes(static_cast<size_t>(format.block));
    std::vector<float> scales(static_cast<size_t>(format.block / format.group));
    std::vector<float> mins(scales.size(), 0.0f);
    for (int round = 0; round < 50; ++round) {
      const std::vector<float> x = Normal(random, 1, 0);
      const std::vector<std::byte> data = Encode(format, x);
      format.integers(data.data(), codes.data(), scales.data(), mins.data());
      for (size_t i = 0; i < codes.size(); ++i) {
        const size_t g = i / static_cast<size_t>(format.group);
        const double wanted = (static_cast<double>(x[i]) - mins[g]) / scales[g];
        double nearest = 1e9;
        for (int code : allowed) nearest = std::min(nearest, std::abs(wanted - code));
        ASSERT_NE(std::ranges::find(allowed, codes[i]), allowed.end())
            << name << " " << int{codes[i]};
        ASSERT_LE(std::abs(wanted - codes[i]), nearest + 128 * 0x1p-22) << name << " of " << wanted;
      }
    }
  }
}

// Of the 127 numbers of E4M3 the nearest to a sixth of the largest weight.
TEST(Encode, OfNvfp4ChoosesTheNearestScale) {
  std::vector<double> numbers;
  for (int d = 0; d < 0x7F; ++d) {
    const std::vector<std::byte> block(36, static_cast<std::byte>(d));
    int8_t codes[64];
    float scales[4];
    kFormatNVFP4.integers(block.data(), codes, scales, nullptr);
    numbers.push_back(2.0 * scales[0]);
  }
  ASSERT_TRUE(std::ranges::is_sorted(numbers));
  ASSERT_EQ(numbers.back(), 448);
  std::mt19937 random(13);
  std::uniform_real_distribution<float> exponent(-12, 10);
  for (int n = 0; n < 20000; ++n) {
    const std::vector<float> x(64, std::exp2(exponent(random)));
    const std::vector<std::byte> block = Encode(kFormatNVFP4, x);
    const double wanted = x[0] / 6.0;
    double nearest = 1e9;
    for (double number : numbers) nearest = std::min(nearest, std::abs(number - wanted));
    const double got = numbers[std::to_integer<size_t>(block[0])];
    ASSERT_LE(std::abs(got - wanted), nearest + wanted * 0x1p-23) << wanted;
  }
}

// A bound in steps says little if the step is larger than it need be: it is the extent of the
// weights over the extent of the codes, rounded to an f16 (2^-10, or 2^-24 among denormals). A
// minimum adds its own rounding to the extent. MXFP4 has powers of two only, NVFP4 4 bits.
TEST(Encode, UsesTheWholeRangeOfItsCodes) {
  std::mt19937 random(5);
  for (const Bound& bound : kBounds) {
    const Format& format = *FindFormat(bound.name);
    const bool is_mx = std::string_view(bound.name) == "MXFP4";
    const bool is_nv = std::string_view(bound.name) == "NVFP4";
    const double relative = is_mx ? 1.0 : is_nv ? 1.0 / 16 : 0x1p-10;
    std::vector<int8_t> codes(kSize);
    std::vector<float> scales(kSize / 16);
    std::vector<float> mins(kSize / 16);
    for (float size : {100.0f, 1.0f, 1e-3f, 1e-6f}) {
      const std::vector<float> x = Normal(random, size, 0.5f);
      const std::vector<std::byte> data = Encode(format, x);
      format.integers(data.data(), codes.data(), scales.data(), mins.data());
      // What shares a scale: a group where groups have scales of their own, else the block.
      const int shared = is_nv ? format.group : format.block;
      const auto [least, most] = std::minmax_element(x.begin(), x.begin() + shared);
      const double extent = format.has_min ? static_cast<double>(*most) - *least
                                           : std::max(std::abs(*least), std::abs(*most));
      const double min_slack = format.has_min ? std::abs(*least) * 0x1p-10 + 0x1p-24 : 0;
      EXPECT_LE(std::abs(scales[0]), (extent + min_slack) / bound.range * (1 + relative) + 0x1p-24 +
                                         (is_nv ? 0x1p-11 : 0))
          << bound.name << " " << size;
    }
  }
}

TEST(Encode, OfWhatItDecodedChangesNothing) {
  std::mt19937 random(6);
  for (const char* name : {"F32", "F16", "BF16", "Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "TQ1_0", "TQ2_0",
                           "MXFP4", "NVFP4", "Q1_0"}) {
    const Format& format = *FindFormat(name);
    for (float size : {100.0f, 1.0f, 0.1f}) {
      const std::vector<float> once = Decode(format, Encode(format, Normal(random, size, 0.1f)));
      EXPECT_EQ(Decode(format, Encode(format, once)), once) << name << " " << size;
    }
  }
}

TEST(Encode, OfF16AndBf16RoundsToNearestEvenAndSaturates) {
  std::mt19937_64 random(9);
  for (int n = 0; n < 2000000; ++n) {
    // Every fourth number lies around the denormals and the halfway points of f16.
    auto bits = static_cast<uint32_t>(random());
    if (n % 4 == 0)
      bits = (bits & 0x87FFF000) | 0x30000000 | (n % 3 == 0 ? 0xFFF : n % 3 == 1 ? 0 : 1);
    const auto v = std::bit_cast<float>(bits);
    uint16_t f16;
    uint16_t bf16;
    kFormatF16.encode(&v, 1, reinterpret_cast<std::byte*>(&f16));
    kFormatBF16.encode(&v, 1, reinterpret_cast<std::byte*>(&bf16));
    const auto saturated = [&](uint16_t nearest, uint16_t infinity) {
      const bool overflowed = std::isfinite(v) && (nearest & 0x7FFF) == infinity;
      return static_cast<uint16_t>(overflowed ? nearest - 1 : nearest);
    };
    ASSERT_EQ(f16, saturated(F32ToF16(v), 0x7C00)) << v;
    ASSERT_EQ(bf16, saturated(F32ToBf16(v), 0x7F80)) << v;
  }
}

TEST(Encode, OfQ1KeepsSignsAndTheMeanMagnitude) {
  std::mt19937 random(10);
  const std::vector<float> x = Normal(random, 1, 0.2f);
  const std::vector<float> decoded = Decode(kFormatQ1_0, Encode(kFormatQ1_0, x));
  for (size_t b = 0; b < kSize; b += 128) {
    double mean = 0;
    for (size_t i = b; i < b + 128; ++i) mean += std::abs(x[i]) / 128.0;
    for (size_t i = b; i < b + 128; ++i) {
      EXPECT_EQ(std::signbit(decoded[i]), std::signbit(x[i]));
      EXPECT_NEAR(std::abs(decoded[i]), mean, mean * 0x1p-11);
    }
  }
}

// The sums that Q8_1 and Q8_K carry for other readers.
TEST(Encode, OfQ8StoresTheSumsOfItsCodes) {
  std::mt19937 random(11);
  const std::vector<float> x = Normal(random, 1, 1);
  const std::vector<std::byte> q8_1 = Encode(kFormatQ8_1, x);
  const auto code = [](std::byte b) { return static_cast<int>(static_cast<int8_t>(b)); };
  for (size_t b = 0; b < kSize / 32; ++b) {
    const std::byte* block = q8_1.data() + 40 * b;
    float header[2];
    std::memcpy(header, block, sizeof(header));
    int sum = 0;
    for (int i = 0; i < 32; ++i) sum += code(block[8 + i]);
    EXPECT_EQ(header[1], header[0] * static_cast<float>(sum));
  }
  const std::vector<std::byte> q8_k = Encode(kFormatQ8_K, x);
  for (size_t g = 0; g < 16; ++g) {
    int16_t stored;
    std::memcpy(&stored, q8_k.data() + 260 + 2 * g, sizeof(stored));
    int sum = 0;
    for (size_t i = 0; i < 16; ++i) sum += code(q8_k[4 + 16 * g + i]);
    EXPECT_EQ(stored, sum);
  }
}

// B074: tiny weights gave NaN scales elsewhere.
TEST(Encode, B074GivesFiniteScalesForTinyWeights) {
  std::mt19937 random(74);
  for (const Format* format : Encoders()) {
    for (int round = 0; round < 2000; ++round) {
      const float size = std::pow(10.0f, -30.0f - static_cast<float>(round % 16));
      for (float v : Decode(*format, Encode(*format, Normal(random, size, 0)))) {
        ASSERT_TRUE(std::isfinite(v)) << format->name << " " << size;
      }
    }
  }
}

// B076: a weighted sum of zero was divided by. Table entry 8, value 1, is the nearest to zero.
TEST(Encode, B076GivesIq4NlOfZerosOrDwarfsScaleZeroAndTheZeroEntry) {
  for (float size : {0.0f, -0.0f, 1e-11f, -1e-11f, 1e-38f, FLT_TRUE_MIN}) {
    const std::vector<float> x(32, size);
    const std::vector<std::byte> block = Encode(kFormatIQ4_NL, x);
    uint16_t scale;
    std::memcpy(&scale, block.data(), sizeof(scale));
    EXPECT_EQ(scale & 0x7FFF, 0) << size;
    for (size_t i = 2; i < block.size(); ++i) EXPECT_EQ(block[i], std::byte{0x88}) << size;
    for (float v : Decode(kFormatIQ4_NL, block)) EXPECT_EQ(v, 0.0f) << size;
  }
}

}  // namespace
}  // namespace lockstep
