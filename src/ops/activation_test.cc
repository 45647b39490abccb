#include "ops/activation.h"

#include <gtest/gtest.h>

#include "ops/testing/rows.h"
#include "simd/scalar.h"

namespace lockstep {
namespace {

using testing::kInf;
using testing::kNan;
using testing::RandomRow;

const Activation kAll[] = {
#define LOCKSTEP_ITEM(Name, spelling) Activation::k##Name,
    LOCKSTEP_FOR_EACH_ACTIVATION(LOCKSTEP_ITEM)
#undef LOCKSTEP_ITEM
};
const std::vector<int64_t> kSizes = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 63, 70, 1000};

TEST(Activation, KernelsEqualReference) {
  for (Activation activation : kAll) {
    SCOPED_TRACE(std::string(ActivationName(activation)));
    testing::ExpectKernelsEqualReference(
        [&](const Kernels* kernels, const float* x, int64_t n, float* y) {
          (kernels ? kernels->activate : ActivateReference)(activation, x, n, y);
        },
        kSizes);
  }
}

TEST(Activation, GatedKernelsEqualReference) {
  const Gating extras[] = {
      {}, {Activation::kSilu, 7, 5, 3, 1}, {Activation::kSilu, -1, 0.5f, 0, -2}};
  for (Activation activation : kAll) {
    for (Gating gating : extras) {
      gating.activation = activation;
      SCOPED_TRACE(std::string(ActivationName(activation)));
      testing::ExpectKernelsEqualReference(
          [&](const Kernels* kernels, const float* x, int64_t n, float* y) {
            std::vector<float> up = RandomRow(n, 4, 8);
            if (n > 3) up[3] = kNan;
            if (n > 20) up[20] = -kInf;
            (kernels ? kernels->activate_gated : ActivateGatedReference)(gating, x, up.data(), n,
                                                                         y);
          },
          kSizes);
    }
  }
}

TEST(Activation, NamesFindThemselves) {
  for (Activation activation : kAll)
    EXPECT_EQ(FindActivation(ActivationName(activation)), activation);
  for (std::string_view unknown : {"", "SILU", "silu ", "swish2"})
    EXPECT_FALSE(FindActivation(unknown));
}

TEST(Activation, LimitsBoundGateProductAndUp) {
  struct Case {
    Gating gating;
    float gate, up, expected;
  };
  const Case cases[] = {
      {{Activation::kRelu}, 3, -2, -6},
      {{Activation::kRelu, 2}, 3, -2, -4},
      {{Activation::kReluSquared, kInf, 5}, 3, 1, 5},
      {{Activation::kReluSquared, kInf, 5}, 2, 1, 4},
      {{Activation::kRelu, kInf, kInf, 7, 1}, 1, 100, 8},
      {{Activation::kRelu, kInf, kInf, 7, 1}, 1, -100, -6},
      {{Activation::kGeluQuick, 7, kInf, 7, 1}, 9, 9, scalar::GeluQuick(7) * 8},
      {{Activation::kRelu, 7}, kNan, 1, kNan},
      {{Activation::kRelu, 7, kInf, 7}, 1, kNan, kNan},
  };
  for (const Case& c : cases) {
    float y = 0;
    ActivateGatedReference(c.gating, &c.gate, &c.up, 1, &y);
    EXPECT_EQ(testing::FirstDifference<float>({y}, {c.expected}), -1) << y << ' ' << c.expected;
  }
}

}  // namespace
}  // namespace lockstep
