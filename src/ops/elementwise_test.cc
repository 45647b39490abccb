#include "ops/elementwise.h"

#include <gtest/gtest.h>

#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::ExpectKernelsEqualReference;
using testing::kInf;
using testing::kNan;
using testing::RandomRow;

std::vector<float> Other(int64_t n) {
  std::vector<float> b = RandomRow(n, 1e19f, 12);
  for (size_t i = 0; i < b.size(); i += 3) b[i] *= 1e-30f;
  if (n > 5) b[5] = kInf;
  if (n > 40) b[40] = kNan;
  return b;
}

TEST(Elementwise, KernelsEqualReference) {
  ExpectKernelsEqualReference([](const Kernels* k, const float* x, int64_t n, float* y) {
    (k ? k->add : AddRowsReference)(x, Other(n).data(), n, y);
  });
  ExpectKernelsEqualReference([](const Kernels* k, const float* x, int64_t n, float* y) {
    (k ? k->mul : MulRowsReference)(x, Other(n).data(), n, y);
  });
  for (float scale : {0.0f, -1.0f, 0.1f, 3e38f, 1e-40f, kInf, kNan}) {
    ExpectKernelsEqualReference([=](const Kernels* k, const float* x, int64_t n, float* y) {
      (k ? k->scale : ScaleRowReference)(x, scale, n, y);
    });
    ExpectKernelsEqualReference([=](const Kernels* k, const float* x, int64_t n, float* y) {
      (k ? k->add_scaled : AddScaledRowsReference)(x, Other(n).data(), scale, n, y);
    });
    ExpectKernelsEqualReference([=](const Kernels* k, const float* x, int64_t n, float* y) {
      (k ? k->add_scaled : AddScaledRowsReference)(Other(n).data(), x, scale, n, y);
    });
  }
}

TEST(Elementwise, ScaledSumsRoundOnce) {
  // 1 + (1 + 2^-23)(1 - 2^-23) is 2 - 2^-46: rounding the product first would lose the same, so look at what cancels.
  float a = -1, b = 1 + 0x1p-23f, y = 0;
  AddScaledRowsReference(&a, &b, 1 - 0x1p-23f, 1, &y);
  EXPECT_EQ(y, -0x1p-46f);
}

TEST(SoftCap, KernelsEqualReference) {
  for (float cap : {30.0f, 50.0f, 1e-3f, 1e30f}) {
    ExpectKernelsEqualReference([=](const Kernels* k, const float* x, int64_t n, float* y) {
      (k ? k->soft_cap : SoftCapReference)(x, n, cap, y);
    });
  }
}

// The quotient rounds once (half an ulp of the result at most, as tanh never grows faster than its argument), tanh is
// within 3 ulp, the product rounds once.
TEST(SoftCap, IsAccurateAndBounded) {
  for (float x : {0.0f, 1e-30f, 0.1f, -3.0f, 29.0f, -100.0f, 1e5f, -3e38f, kInf, -kInf}) {
    float y = 0;
    SoftCapReference(&x, 1, 30, &y);
    long double exact = 30 * std::tanh(static_cast<long double>(x) / 30);
    EXPECT_LE(std::fabs(y - exact), std::fabs(exact) * 5 * 0x1p-23L) << x;
    EXPECT_LE(std::fabs(y), 30) << x;
  }
}

}  // namespace
}  // namespace lockstep
