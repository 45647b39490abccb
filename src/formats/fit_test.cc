// Fitting encoders: no worse than the fast ones, nothing left to gain by changing a byte, and what
// must hold for any input.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "formats/rows.h"
#include "formats/testing/coding.h"

namespace lockstep {
namespace {

using test::Decode;

constexpr int kSize = test::kRowSize;

std::vector<const Format*> Fitters() {
  std::vector<const Format*> fitters;
  for (const Format* format : AllFormats()) {
    if (format->fit != nullptr) fitters.push_back(format);
  }
  return fitters;
}

std::vector<std::byte> Fit(const Format& format, const std::vector<float>& x,
                           const std::vector<float>& importance = {}) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> out(static_cast<size_t>(format.RowBytes(n)));
  format.fit(x.data(), importance.empty() ? nullptr : importance.data(), n / format.block,
             out.data());
  return out;
}

std::vector<float> Normal(std::mt19937& random, float size) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> x(kSize);
  for (float& v : x) v = normal(random);
  return x;
}

// As of channels whose sizes differ by several times.
std::vector<float> Importance(std::mt19937& random) {
  std::vector<float> importance = Normal(random, 1);
  for (float& v : importance) v = std::exp(v);
  return importance;
}

// What a fit minimises (formats/fit.h): squared errors weighted by the importance, and a little by
// size within the block.
double WeightedError(const Format& format, const std::vector<float>& x,
                     const std::vector<float>& importance, const std::vector<float>& decoded) {
  double sum = 0;
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(format.block)) {
    double mean = 0;
    const size_t end = begin + static_cast<size_t>(format.block);
    for (size_t i = begin; i < end; ++i) mean += double{x[i]} * x[i] / format.block;
    for (size_t i = begin; i < end; ++i) {
      const double off = double{x[i]} - decoded[i];
      sum += std::sqrt(mean + double{x[i]} * x[i]) * off * off *
             (importance.empty() ? 1.0 : importance[i]);
    }
  }
  return sum;
}

TEST(Fit, IsThereForEveryFormatOfFewerThanSixteenBits) {
  for (const Format* format : AllFormats()) {
    const bool blocks = format->block > 1;
    const bool inner = format->name == "Q8_1" || format->name == "Q8_K";
    EXPECT_EQ(format->fit != nullptr, blocks && !inner) << format->name;
    if (format->fit != nullptr) {
      EXPECT_NE(format->encode, nullptr) << format->name;
    }
  }
}

TEST(Fit, IsNoWorseThanTheFastEncoder) {
  std::mt19937 random(1);
  for (const Format* format : Fitters()) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> x = Normal(random, 0.02f);
      const std::vector<float> importance = Importance(random);
      std::vector<std::byte> fast(static_cast<size_t>(format->RowBytes(kSize)));
      format->encode(x.data(), kSize / format->block, fast.data());
      const double fitted =
          WeightedError(*format, x, importance, Decode(*format, Fit(*format, x, importance)));
      // A thousandth for the rounding of the best scale to an f16.
      EXPECT_LE(fitted, WeightedError(*format, x, importance, Decode(*format, fast)) * 1.001)
          << format->name;
    }
  }
}

// Every byte of a block is set to every other value in turn: none may lower the error by more than
// what the search is allowed to leave: the shared scale comes from least squares, one step of which
// follows the last choice of codes.
TEST(Fit, LeavesNoByteThatIsWorthChanging) {
  std::mt19937 random(2);
  for (const Format* format : Fitters()) {
    const std::vector<float> importance = Importance(random);
    std::vector<float> x = Normal(random, 1);
    x.resize(static_cast<size_t>(format->block));
    // Its fourth pattern, 2, is no ternary code: fitting leaves it alone.
    if (format->name == "TQ2_0") continue;
    std::vector<std::byte> block = Fit(*format, x, importance);
    const double error = WeightedError(*format, x, importance, Decode(*format, block));
    for (size_t at = 0; at < block.size(); ++at) {
      const std::byte kept = block[at];
      for (int value = 0; value < 256; ++value) {
        block[at] = static_cast<std::byte>(value);
        const double changed = WeightedError(*format, x, importance, Decode(*format, block));
        ASSERT_FALSE(changed < error * 0.97) << format->name << " byte " << at << " = " << value;
      }
      block[at] = kept;
    }
  }
}

TEST(Fit, OfABlockDependsOnThatBlockOnly) {
  std::mt19937 random(3);
  const std::vector<float> x = Normal(random, 1);
  const std::vector<float> importance = Importance(random);
  for (const Format* format : Fitters()) {
    const std::vector<std::byte> whole = Fit(*format, x, importance);
    EXPECT_EQ(Fit(*format, x, importance), whole) << format->name;
    std::vector<std::byte> parts;
    for (int64_t at = 0; at < kSize; at += format->block) {
      const auto part =
          Fit(*format, std::vector<float>(x.begin() + at, x.begin() + at + format->block),
              std::vector<float>(importance.begin() + at, importance.begin() + at + format->block));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(whole, parts) << format->name;
  }
}

TEST(Fit, SpendsItsBitsWhereTheImportanceIs) {
  std::mt19937 random(4);
  for (const Format* format : Fitters()) {
    double with = 0, without = 0;
    for (int round = 0; round < 10; ++round) {
      const std::vector<float> x = Normal(random, 1);
      std::vector<float> importance(kSize, 1.0f);
      for (size_t i = 0; i < kSize; i += 8) importance[i] = 100.0f;
      with += WeightedError(*format, x, importance, Decode(*format, Fit(*format, x, importance)));
      without += WeightedError(*format, x, importance, Decode(*format, Fit(*format, x)));
    }
    EXPECT_LT(with, without) << format->name;
  }
}

TEST(Fit, DoesNotDependOnTheSizeOfTheImportance) {
  std::mt19937 random(5);
  const std::vector<float> x = Normal(random, 1);
  const std::vector<float> importance = Importance(random);
  for (const Format* format : Fitters()) {
    const std::vector<std::byte> expected = Fit(*format, x, importance);
    for (float factor : {0x1p-60f, 0x1p60f}) {
      std::vector<float> scaled = importance;
      for (float& v : scaled) v *= factor;
      EXPECT_EQ(Fit(*format, x, scaled), expected) << format->name << " " << factor;
    }
    // Columns that were never used: as if nothing was known.
    EXPECT_EQ(Fit(*format, x, std::vector<float>(kSize, 0.0f)), Fit(*format, x)) << format->name;
  }
}

TEST(Fit, MeetsWeightsThatTheFormatHoldsExactly) {
  std::mt19937 random(6);
  for (const char* name : {"Q4_0", "Q5_0", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"}) {
    const Format& format = *FindFormat(name);
    for (float size : {100.0f, 0.1f, 1e-3f}) {
      const std::vector<float> once = Decode(format, Fit(format, Normal(random, size)));
      EXPECT_EQ(Decode(format, Fit(format, once)), once) << name << " " << size;
    }
  }
}

TEST(Fit, OfFiniteNumbersDecodesToFiniteNumbers) {
  std::mt19937 random(7);
  std::vector<std::vector<float>> importances = {{}};
  for (float v : {0.0f, 1.0f, FLT_MAX, FLT_TRUE_MIN}) importances.emplace_back(kSize, v);
  importances.emplace_back(kSize, 0.0f)[77] = FLT_MAX;
  // B074: one infinity.
  importances.emplace_back(kSize, 1.0f)[77] = std::numeric_limits<float>::infinity();
  for (const Format* format : Fitters()) {
    for (float size : {3e37f, 1e30f, 1e5f, 1.0f, 1e-7f, 1e-30f, 1e-38f, FLT_TRUE_MIN}) {
      std::vector<float> spiked = Normal(random, size);
      spiked[9] = FLT_MAX;
      for (const auto& x : {Normal(random, size), spiked, std::vector<float>(kSize, size),
                            std::vector<float>(kSize, -size)}) {
        for (const std::vector<float>& importance : importances) {
          for (float v : Decode(*format, Fit(*format, x, importance))) {
            ASSERT_TRUE(std::isfinite(v)) << format->name << " " << size;
          }
        }
      }
    }
  }
}

// B076: a weighted sum of zero was divided by.
TEST(Fit, B076OfZerosThatNothingWeighsDecodesToZeros) {
  for (const Format* format : Fitters()) {
    for (float v : Decode(*format, Fit(*format, std::vector<float>(kSize, 0.0f),
                                       std::vector<float>(kSize, 0.0f)))) {
      ASSERT_EQ(v, 0) << format->name;
    }
  }
}

TEST(Fit, SurvivesNanAndInfinity) {
  for (const Format* format : Fitters()) {
    for (const std::vector<float>& x : test::RowsWithNanAndInfinity()) {
      EXPECT_EQ(Decode(*format, Fit(*format, x)).size(), x.size()) << format->name;
      EXPECT_EQ(Decode(*format, Fit(*format, std::vector<float>(kSize, 1), x)).size(), x.size())
          << format->name;
    }
  }
}

}  // namespace
}  // namespace lockstep
