// The table of formats, decoding, and the integer view. The expected numbers are those of
// tests/oracles/formats_oracle.py.
#include "formats/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/rows.h"
#include "tensor/half.h"

namespace lockstep {
namespace {

struct Golden {
  std::string name;
  uint32_t id = 0;
  int32_t block = 0;
  int32_t block_bytes = 0;
  int64_t blocks = 0;
  std::vector<std::byte> data;
  std::vector<float> expected;
};

std::vector<Golden> ReadGoldens() {
  const std::string file =
      ReadFile(LOCKSTEP_SOURCE_DIR "/src/formats/testdata/formats.bin", 1 << 20);
  std::vector<Golden> goldens;
  size_t at = 0;
  const auto read = [&](void* out, size_t bytes) {
    ASSERT_LE(at + bytes, file.size());
    std::memcpy(out, file.data() + at, bytes);
    at += bytes;
  };
  while (at < file.size() && !testing::Test::HasFatalFailure()) {
    char name[9] = {};
    uint32_t numbers[4] = {};
    read(name, 8);
    read(numbers, sizeof(numbers));
    Golden golden{name,
                  numbers[0],
                  static_cast<int32_t>(numbers[1]),
                  static_cast<int32_t>(numbers[2]),
                  numbers[3],
                  std::vector<std::byte>(numbers[3] * numbers[2]),
                  std::vector<float>(numbers[3] * numbers[1])};
    read(golden.data.data(), golden.data.size());
    read(golden.expected.data(), golden.expected.size() * sizeof(float));
    goldens.push_back(std::move(golden));
  }
  return goldens;
}

// Same bits, or both NaN.
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// The integer view of every format that has one, as a matrix kernel may rely on it.
struct IntegerRow {
  const char* name;
  int group;
  bool has_min;
  int low;
  int high;
};
constexpr IntegerRow kIntegerRows[] = {
    {"Q4_0", 32, false, -8, 7},       {"Q4_1", 32, true, 0, 15},
    {"Q5_0", 32, false, -16, 15},     {"Q5_1", 32, true, 0, 31},
    {"Q8_0", 32, false, -128, 127},   {"Q8_1", 32, false, -128, 127},
    {"Q2_K", 16, true, 0, 3},         {"Q3_K", 16, false, -4, 3},
    {"Q4_K", 32, true, 0, 15},        {"Q5_K", 32, true, 0, 31},
    {"Q6_K", 16, false, -32, 31},     {"Q8_K", 32, false, -128, 127},
    {"IQ2_XXS", 32, false, -43, 43},  {"IQ2_XS", 16, false, -43, 43},
    {"IQ3_XXS", 32, false, -62, 62},  {"IQ1_S", 32, false, -9, 9},
    {"IQ4_NL", 32, false, -127, 113}, {"IQ3_S", 32, false, -15, 15},
    {"IQ2_S", 16, false, -43, 43},    {"IQ4_XS", 32, false, -127, 113},
    {"IQ1_M", 16, false, -9, 9},      {"TQ1_0", 32, false, -1, 1},
    {"TQ2_0", 32, false, -1, 2},      {"MXFP4", 32, false, -12, 12},
    {"NVFP4", 16, false, -12, 12},    {"Q1_0", 32, false, -1, 1},
};

void FillRandom(std::mt19937_64& random, std::vector<std::byte>& bytes) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, bytes.size() - i));
  }
}

TEST(FormatTable, HasEveryFormatOfTheOracleInOrder) {
  const std::vector<Golden> goldens = ReadGoldens();
  const auto formats = AllFormats();
  ASSERT_EQ(formats.size(), goldens.size());
  for (size_t i = 0; i < formats.size(); ++i) {
    EXPECT_EQ(formats[i]->name, goldens[i].name);
    EXPECT_EQ(formats[i]->id, goldens[i].id) << goldens[i].name;
    EXPECT_EQ(formats[i]->block, goldens[i].block) << goldens[i].name;
    EXPECT_EQ(formats[i]->block_bytes, goldens[i].block_bytes) << goldens[i].name;
    EXPECT_EQ(formats[i]->RowBytes(5 * goldens[i].block), 5 * goldens[i].block_bytes);
  }
}

TEST(FormatTable, FindsByIdAndByNameInAnyCase) {
  for (const Format* format : AllFormats()) {
    EXPECT_EQ(FindFormat(format->id), format);
    EXPECT_EQ(FindFormat(format->name), format);
    std::string lower(format->name);
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(FindFormat(lower), format);
  }
}

TEST(FormatTable, KnowsNoOthers) {
  for (uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 42u, 255u, 0x80000000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(FindFormat(id), nullptr) << id;
  }
  const std::string_view names[] = {"",     "Q4", "Q4_K_",   "Q4_KM", " Q4_K",
                                    "Q4-K", "F8", {"\0", 1}, "\xff",  {"Q4_0\0", 5}};
  for (std::string_view name : names) EXPECT_EQ(FindFormat(name), nullptr) << name;
}

TEST(Decode, EqualsTheOracleBitForBit) {
  for (const Golden& golden : ReadGoldens()) {
    const Format* format = FindFormat(golden.id);
    ASSERT_NE(format, nullptr) << golden.name;
    std::vector<float> out(golden.expected.size());
    format->decode(golden.data.data(), golden.blocks, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(Same(out[i], golden.expected[i]))
          << golden.name << " weight " << i << ": " << out[i] << ", expected "
          << golden.expected[i];
    }
  }
}

TEST(Decode, NeedsNoAlignmentAndWritesNothingBeyondItsBlocks) {
  constexpr float kFence = -12345.0f;
  for (const Golden& golden : ReadGoldens()) {
    const Format* format = FindFormat(golden.id);
    ASSERT_NE(format, nullptr) << golden.name;
    for (size_t shift : {1, 2, 3}) {
      std::vector<std::byte> moved(golden.data.size() + shift);
      std::ranges::copy(golden.data, moved.begin() + static_cast<ptrdiff_t>(shift));
      std::vector<float> out(golden.expected.size() + 1, kFence);
      format->decode(moved.data() + shift, golden.blocks, out.data());
      ASSERT_EQ(out.back(), kFence) << golden.name;
      for (size_t i = 0; i < golden.expected.size(); ++i) {
        ASSERT_TRUE(Same(out[i], golden.expected[i])) << golden.name << " weight " << i;
      }
    }
  }
}

TEST(Decode, OfF16AndBf16EqualsTheScalarConversionEverywhere) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float f16;
    float bf16;
    kFormatF16.decode(reinterpret_cast<const std::byte*>(&half), 1, &f16);
    kFormatBF16.decode(reinterpret_cast<const std::byte*>(&half), 1, &bf16);
    ASSERT_TRUE(Same(f16, F16ToF32(half))) << bits;
    ASSERT_TRUE(Same(bf16, Bf16ToF32(half))) << bits;
  }
}

TEST(IntegerView, IsThereForBlocksAndOnlyForThem) {
  for (const Format* format : AllFormats()) {
    const bool is_block = format->block > 1;
    EXPECT_EQ(format->integers != nullptr, is_block) << format->name;
    EXPECT_EQ(format->group != 0, is_block) << format->name;
    EXPECT_TRUE(is_block || !format->has_min) << format->name;
  }
}

TEST(IntegerView, HasItsDocumentedGroups) {
  size_t blocks = 0;
  for (const Format* format : AllFormats()) blocks += format->block > 1;
  EXPECT_EQ(blocks, std::size(kIntegerRows));
  for (const IntegerRow& row : kIntegerRows) {
    const Format* format = FindFormat(row.name);
    ASSERT_NE(format, nullptr) << row.name;
    EXPECT_EQ(format->group, row.group) << row.name;
    EXPECT_EQ(format->has_min, row.has_min) << row.name;
    EXPECT_EQ(format->block % format->group, 0) << row.name;
  }
}

// Decoding is `scale * code + min` in f32, each operation rounded once, in exactly that order, so
// the bound is zero. Both ends of the range of codes must occur, or the range is not the format's.
TEST(IntegerView, DecodesToTheFloatViewAndStaysInItsRangeOnHostileBlocks) {
  constexpr int kRounds = 100;
  constexpr int kBlocks = 1000;
  std::mt19937_64 random(7);
  for (const IntegerRow& row : kIntegerRows) {
    const Format& format = *FindFormat(row.name);
    std::vector<std::byte> data(static_cast<size_t>(format.RowBytes(kBlocks * format.block)));
    std::vector<float> decoded(static_cast<size_t>(kBlocks * format.block));
    std::vector<int8_t> codes(static_cast<size_t>(format.block));
    std::vector<float> scales(static_cast<size_t>(format.block / format.group));
    std::vector<float> mins(scales.size());
    int low = 127;
    int high = -128;
    int64_t different = 0;
    for (int round = 0; round < kRounds; ++round) {
      FillRandom(random, data);
      format.decode(data.data(), kBlocks, decoded.data());
      for (int b = 0; b < kBlocks; ++b) {
        format.integers(data.data() + b * format.block_bytes, codes.data(), scales.data(),
                        format.has_min ? mins.data() : nullptr);
        const float* weights = decoded.data() + b * format.block;
        for (int i = 0; i < format.block; ++i) {
          const int g = i / format.group;
          float weight = scales[g] * static_cast<float>(codes[i]);
          if (format.has_min) weight += mins[g];
          different += !Same(weight, weights[i]);
          low = std::min<int>(low, codes[i]);
          high = std::max<int>(high, codes[i]);
        }
      }
    }
    EXPECT_EQ(different, 0) << row.name;
    EXPECT_EQ(low, row.low) << row.name;
    EXPECT_EQ(high, row.high) << row.name;
  }
}

// A finite scale or minimum is an f16 of 11 significant bits times a scale of at most 8, so the
// last 5 of the 24 bits of an f32 stay clear, and it is a multiple of 2^-24 (the least f16) times
// the 1/8 that IQ1 and IQ2 fold into it. A product that had been rounded would show.
TEST(IntegerView, ScalesAreExact) {
  std::mt19937_64 random(8);
  for (const IntegerRow& row : kIntegerRows) {
    const Format& format = *FindFormat(row.name);
    // These have an f32 or a power of two, taken as it is.
    if (std::string_view(row.name) == "Q8_1" || std::string_view(row.name) == "Q8_K" ||
        std::string_view(row.name) == "MXFP4") {
      continue;
    }
    std::vector<std::byte> block(static_cast<size_t>(format.block_bytes));
    std::vector<int8_t> codes(static_cast<size_t>(format.block));
    std::vector<float> scales(static_cast<size_t>(format.block / format.group));
    std::vector<float> mins(scales.size());
    for (int n = 0; n < 10000; ++n) {
      FillRandom(random, block);
      format.integers(block.data(), codes.data(), scales.data(), mins.data());
      for (size_t g = 0; g < scales.size(); ++g) {
        for (float v : {scales[g], format.has_min ? mins[g] : 0.0f}) {
          if (!std::isfinite(v)) continue;
          const double steps = static_cast<double>(v) * 0x1p27;
          ASSERT_EQ(steps, std::trunc(steps)) << row.name;
          ASSERT_EQ(std::bit_cast<uint32_t>(v) & 0x1F, 0u) << row.name << " " << v;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
