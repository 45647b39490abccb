#include "ops/softmax.h"

#include <gtest/gtest.h>

#include "ops/argmax.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::FiniteRows;
using testing::kInf;
using testing::kNan;
using testing::RandomRow;
using testing::Row;
using testing::Rows;
using testing::Sizes;

TEST(Softmax, KernelsEqualReference) {
  testing::ExpectKernelsEqualReference([](const Kernels* k, const float* x, int64_t n, float* y) {
    (k ? k->softmax : SoftmaxReference)(x, n, y);
  });
}

// x - max rounds once, which exp turns into half an ulp of the difference; exp 1.5 ulp; the sum d/16 + 4; the quotient 1.
TEST(Softmax, IsAccurateAndSumsToOne) {
  for (int64_t d : {1, 8, 70, 256}) {
    for (float size : {1e-3f, 1.0f, 10.0f, 1e5f}) {
      std::vector<float> x = RandomRow(d, size, 3), y(x.size());
      SoftmaxReference(x.data(), d, y.data());
      long double most = *std::max_element(x.begin(), x.end()), total = 0, sum = 0;
      for (float v : x) total += std::exp(v - most);
      for (size_t i = 0; i < x.size(); ++i) {
        long double difference = most - x[i], exact = std::exp(-difference) / total;
        long double relative = (std::min(difference, 105.0L) + d / 16 + 8) * 0x1p-23L;
        ASSERT_LE(std::fabs(y[i] - exact), exact * relative + 0x1p-148L) << d << ' ' << size;
        sum += y[i];
      }
      EXPECT_NEAR(static_cast<double>(sum), 1, 1e-5);
    }
  }
}

TEST(Softmax, GivesZeroToMinusInfinityAndNanToNonsense) {
  std::vector<float> x = {1, -kInf, 1}, y(3);
  SoftmaxReference(x.data(), 3, y.data());
  EXPECT_EQ(y, (std::vector<float>{0.5f, 0, 0.5f}));
  for (float odd : {kNan, kInf}) {
    x[1] = odd;
    SoftmaxReference(x.data(), 3, y.data());
    for (float v : y) EXPECT_TRUE(v != v || (odd == kInf && v == 0));
    EXPECT_TRUE(std::isnan(y[1]));
  }
}

TEST(Argmax, KernelsEqualReference) {
  for (int64_t n : Sizes()) {
    std::vector<Row> rows = Rows(n);
    rows.push_back({"few values", RandomRow(n, 1.5f, 5)});
    for (float& v : rows.back().values) v = std::round(v);
    for (const Row& row : rows) {
      for (Isa isa : AvailableIsas()) {
        testing::Fenced<float> x(row.values);
        ASSERT_EQ(KernelsFor(isa).argmax(x.data(), n), ArgmaxReference(x.data(), n))
            << IsaName(isa) << ' ' << n << ' ' << row.name;
      }
    }
  }
}

TEST(Argmax, TakesTheLowerIndexOfTiesAndPassesOverNan) {
  struct Case {
    std::vector<float> row;
    int64_t expected;
  };
  std::vector<float> late(100, 1.0f), lanes(64, -kInf);
  late[37] = late[38] = late[53] = 2;
  lanes[33] = lanes[18] = 5;
  const Case cases[] = {
      {{}, -1},        {{kNan, kNan}, -1}, {{-kInf}, 0},         {{kNan, -kInf, -kInf}, 1},
      {{0, -0.0f}, 0}, {{-0.0f, 0}, 0},    {{1, kInf, kInf}, 1}, {{3, kNan, 4}, 2},
      {late, 37},      {lanes, 18}};
  for (const Case& c : cases) {
    int64_t n = std::ssize(c.row);
    EXPECT_EQ(ArgmaxReference(c.row.data(), n), c.expected);
    for (Isa isa : AvailableIsas()) EXPECT_EQ(KernelsFor(isa).argmax(c.row.data(), n), c.expected);
  }
}

}  // namespace
}  // namespace lockstep
