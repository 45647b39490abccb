#include <gtest/gtest.h>

#include "ops/kernels.h"
#include "ops/norm_factor.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::FiniteRows;
using testing::kInf;
using testing::kNan;
using testing::RandomRow;
using testing::Row;

constexpr float kEps = 1e-6f;

TEST(RmsNorm, KernelsEqualReference) {
  for (float eps : {0.0f, kEps}) {
    testing::ExpectKernelsEqualReference(
        [&](const Kernels* kernels, const float* x, int64_t n, float* y) {
          std::vector<float> w = RandomRow(n, 1, 9);
          (kernels ? kernels->rms_norm : RmsNormReference)(x, w.data(), n, eps, y);
        });
    testing::ExpectKernelsEqualReference(
        [&](const Kernels* kernels, const float* x, int64_t n, float* y) {
          (kernels ? kernels->rms_norm : RmsNormReference)(x, nullptr, n, eps, y);
        });
  }
}

TEST(LayerNorm, KernelsEqualReference) {
  for (int parts = 0; parts < 4; ++parts) {
    testing::ExpectKernelsEqualReference(
        [&](const Kernels* kernels, const float* x, int64_t n, float* y) {
          std::vector<float> w = RandomRow(n, 1, 9), b = RandomRow(n, 1, 10);
          (kernels ? kernels->layer_norm : LayerNormReference)(
              x, parts & 1 ? w.data() : nullptr, parts & 2 ? b.data() : nullptr, n, kEps, y);
        });
  }
}

TEST(L2Norm, KernelsEqualReference) {
  testing::ExpectKernelsEqualReference(
      [](const Kernels* kernels, const float* x, int64_t n, float* y) {
        (kernels ? kernels->l2_norm : L2NormReference)(x, n, kEps, y);
      });
}

// A lane adds d/16 terms and the tree four more, each rounding once, which the root halves; the factor and the two
// products round once each.
long double RelativeBound(int64_t d) { return (d / 16 + 8) * 0x1p-24L; }

TEST(RmsNorm, IsAccurateForEveryFiniteRow) {
  for (int64_t d : {1, 7, 64, 1000, 4096}) {
    for (float eps : {0.0f, kEps, 1e-5f}) {
      for (const Row& row : FiniteRows(d)) {
        long double squares = 0;
        for (float x : row.values) squares += static_cast<long double>(x) * x;
        long double root = std::sqrt(squares / d + eps);
        std::vector<float> y(row.values.size());
        RmsNormReference(row.values.data(), nullptr, d, eps, y.data());
        for (size_t i = 0; i < y.size(); ++i) {
          long double exact = root == 0 ? 0 : row.values[i] / root;
          ASSERT_LE(std::fabs(y[i] - exact),
                    RelativeBound(d) * std::fabs(exact) + (std::sqrt(d) + 1) * 0x1p-149L)
              << row.name << ' ' << d << ' ' << eps;
        }
      }
    }
  }
}

TEST(L2Norm, GivesUnitLengthForEveryFiniteRow) {
  for (int64_t d : {1, 7, 128}) {
    for (const Row& row : FiniteRows(d)) {
      std::vector<float> y(row.values.size());
      L2NormReference(row.values.data(), d, 0, y.data());
      long double length = 0;
      for (float v : y) length += static_cast<long double>(v) * v;
      bool zero = row.values[0] == 0 && row.values.back() == 0 && length == 0;
      if (zero) continue;
      EXPECT_NEAR(static_cast<double>(std::sqrt(length)), 1, 1e-5) << row.name << ' ' << d;
    }
  }
}

// The mean is off by d/16 + 5 roundings of the largest element, which the factor carries into y; the rest is relative.
TEST(LayerNorm, IsAccurateForEveryFiniteRow) {
  for (int64_t d : {2, 7, 64, 1000}) {
    for (const Row& row : FiniteRows(d)) {
      long double mean = 0, variance = 0, most = 0;
      for (float x : row.values) {
        mean += x;
        most = std::max(most, std::fabs(static_cast<long double>(x)));
      }
      mean /= d;
      for (float x : row.values) variance += (x - mean) * (x - mean);
      long double root = std::sqrt(variance / d + kEps);
      std::vector<float> y(row.values.size());
      LayerNormReference(row.values.data(), nullptr, nullptr, d, kEps, y.data());
      long double mean_error = (d / 16 + 5) * 0x1p-24L * most;
      for (size_t i = 0; i < y.size(); ++i) {
        long double exact = (row.values[i] - mean) / root;
        // Off means of a constant row are deviations of their own: bounded by what eps leaves of them.
        long double carried = mean_error / std::max(root, mean_error);
        ASSERT_LE(std::fabs(y[i] - exact),
                  2 * carried + RelativeBound(d) * std::fabs(exact) + 0x1p-140L)
            << row.name << ' ' << d << ' ' << i;
      }
    }
  }
}

TEST(RmsNorm, LetsNanAndInfinityShow) {
  for (float odd : {kNan, kInf, -kInf}) {
    std::vector<float> x = RandomRow(40, 1, 1), y(40);
    x[17] = odd;
    RmsNormReference(x.data(), nullptr, 40, kEps, y.data());
    EXPECT_TRUE(std::isnan(y[17]));
  }
}

TEST(NormFactor, ScalesOnlyRowsOutsideTheSafeRange) {
  auto scale_of = [](float most) { return RangeScale(std::bit_cast<int32_t>(most)); };
  for (float safe : {0x1p-40f, 1.0f, 3e5f, 0x1.fffffep39f}) EXPECT_EQ(scale_of(safe), 1) << safe;
  EXPECT_EQ(scale_of(0x1p40f), 0x1p-40f);
  EXPECT_EQ(scale_of(0x1.fffffep-41f), 0x1p41f);
  EXPECT_EQ(scale_of(3.4e38f), 0x1p-126f);
  EXPECT_EQ(scale_of(1e-45f), 0x1p126f);
  EXPECT_EQ(scale_of(0), 0x1p126f);
  EXPECT_EQ(scale_of(kInf), 0x1p-126f);
}

}  // namespace
}  // namespace lockstep
