#include "ops/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ops/kernels.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::RandomRow;

TEST(Hadamard, KernelsEqualReference) {
  testing::ExpectKernelsEqualReference(
      [](const Kernels* kernels, const float* x, int64_t n, float* y) {
        // Of the length's own factors, as heads have them.
        const int64_t block = n == 0 ? 1 : HadamardBlock(n);
        (kernels ? kernels->hadamard : HadamardReference)(x, n, block, y);
      });
}

TEST(Hadamard, KernelsEqualReferenceForEveryBlock) {
  for (Isa isa : AvailableIsas()) {
    for (int64_t block = 1; block <= 512; block *= 2) {
      for (int64_t blocks : {1, 2, 3, 7}) {
        const std::vector<float> x = RandomRow(blocks * block, 3, 1);
        std::vector<float> expected(x.size()), y = x;
        HadamardReference(x.data(), blocks * block, block, expected.data());
        KernelsFor(isa).hadamard(y.data(), blocks * block, block, y.data());
        EXPECT_EQ(y, expected) << block << " " << blocks;
      }
    }
  }
}

// The matrix by its definition, in long double. Every stage rounds once; the scale and the first
// product once each.
TEST(Hadamard, IsTheMatrixOfBitParities) {
  for (int64_t block : {1, 2, 8, 64, 128}) {
    const std::vector<float> x = RandomRow(block, 1, 2);
    std::vector<float> y(x.size());
    HadamardReference(x.data(), block, block, y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      long double exact = 0, size = 0;
      for (size_t j = 0; j < x.size(); ++j) {
        exact += std::popcount(i & j) % 2 == 0 ? x[j] : -x[j];
        size += std::fabs(x[j]);
      }
      const long double root = std::sqrt(static_cast<long double>(block));
      const int stages = std::bit_width(static_cast<uint64_t>(block)) + 2;
      EXPECT_LE(std::fabs(y[i] - exact / root), stages * 0x1p-24L * size / root) << block;
    }
  }
}

TEST(Hadamard, IsItsOwnInverseAndKeepsLengths) {
  for (int64_t d : {64, 80, 96, 128, 192, 256}) {
    const std::vector<float> x = RandomRow(d, 1, 3);
    std::vector<float> y(x.size()), z(x.size());
    HadamardReference(x.data(), d, HadamardBlock(d), y.data());
    HadamardReference(y.data(), d, HadamardBlock(d), z.data());
    double before = 0, after = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(z[i], x[i], 1e-5);
      before += double{x[i]} * x[i];
      after += double{y[i]} * y[i];
    }
    EXPECT_NEAR(after / before, 1, 1e-6);
  }
}

TEST(Hadamard, RotatesTheLargestPowerOfTwoOfAHeadWithinABlockOfTheCache) {
  EXPECT_EQ(HadamardBlock(128), 32);
  EXPECT_EQ(HadamardBlock(16), 16);
  EXPECT_EQ(HadamardBlock(80), 16);
  EXPECT_EQ(HadamardBlock(96), 32);
  EXPECT_EQ(HadamardBlock(7), 1);
}

}  // namespace
}  // namespace lockstep
