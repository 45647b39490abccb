#include "ops/quantize_row.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::Fenced;
using testing::FiniteRows;
using testing::FirstDifference;
using testing::kInf;
using testing::kNan;
using testing::RandomRow;
using testing::Row;
using testing::Rows;
using testing::Sizes;

// A quantised row in fenced memory.
struct Output {
  explicit Output(int64_t k)
      : codes(Blocks(k) * 32),
        scales(Blocks(k) * 2),
        minus_sums(Blocks(k) * 2),
        scaled_sums(Blocks(k) * 3) {}
  static size_t Blocks(int64_t k) { return static_cast<size_t>((k + 31) / 32); }
  bool Run(QuantizeRowFn* function, const float* x, int64_t k) {
    return function(x, k, {codes.data(), scales.data(), minus_sums.data(), scaled_sums.data()});
  }
  Fenced<int8_t> codes;
  Fenced<float> scales;
  Fenced<int32_t> minus_sums;
  Fenced<float> scaled_sums;
};

TEST(QuantizeRow, KernelsEqualReference) {
  for (int64_t k : Sizes()) {
    for (const Row& row : Rows(k)) {
      Fenced<float> x(row.values);
      Output expected(k);
      bool finite = expected.Run(QuantizeRowReference, x.data(), k);
      for (Isa isa : AvailableIsas()) {
        SCOPED_TRACE(fmt::format("{}, {} elements, {}", IsaName(isa), k, row.name));
        Output found(k);
        ASSERT_EQ(found.Run(KernelsFor(isa).quantize_row, x.data(), k), finite);
        ASSERT_EQ(FirstDifference(expected.codes.values(), found.codes.values()), -1);
        ASSERT_EQ(FirstDifference(expected.scales.values(), found.scales.values()), -1);
        ASSERT_EQ(FirstDifference(expected.minus_sums.values(), found.minus_sums.values()), -1);
        ASSERT_EQ(FirstDifference(expected.scaled_sums.values(), found.scaled_sums.values()), -1);
        ASSERT_TRUE(found.codes.intact() && found.scales.intact());
        ASSERT_TRUE(found.minus_sums.intact() && found.scaled_sums.intact());
      }
    }
  }
}

TEST(QuantizeRow, IsWithinItsErrorBoundForEveryFiniteRow) {
  for (int64_t k : {1, 32, 50, 1000}) {
    for (const Row& row : FiniteRows(k)) {
      Output out(k);
      ASSERT_TRUE(out.Run(QuantizeRowReference, row.values.data(), k)) << row.name;
      for (int64_t i = 0; i < k; ++i) {
        int64_t begin = i / 16 * 16, end = std::min(begin + 16, k);
        long double amax = 0;
        for (int64_t j = begin; j < end; ++j) {
          amax = std::max(amax,
                          std::fabs(static_cast<long double>(row.values[static_cast<size_t>(j)])));
        }
        long double scale = out.scales.data()[i / 16];
        long double error =
            std::fabs(row.values[static_cast<size_t>(i)] - scale * out.codes.data()[i]);
        ASSERT_LE(error, amax * (1 / 254.0L + 0x1p-22L) + 127 * 0x1p-149L) << row.name << ' ' << i;
      }
    }
  }
}

TEST(QuantizeRow, SumsItsCodesAndPadsWithZeros) {
  std::vector<float> x = RandomRow(45, 1, 1);
  Output out(45);
  ASSERT_TRUE(out.Run(QuantizeRowReference, x.data(), 45));
  std::vector<int8_t> codes = out.codes.values();
  for (size_t block = 0; block < 2; ++block) {
    float sums[2];
    for (size_t half = 0; half < 2; ++half) {
      const size_t at = 2 * block + half;
      auto begin = codes.begin() + static_cast<ptrdiff_t>(16 * at);
      const int sum = std::accumulate(begin, begin + 16, 0);
      const float scale = out.scales.data()[at];
      sums[half] = static_cast<float>(sum);
      EXPECT_EQ(out.minus_sums.data()[at], -sum);
      EXPECT_EQ(out.scaled_sums.data()[3 * block + half], scale * sums[half]);
      if (at == 3) continue;  // all padding
      auto most = std::max_element(begin, begin + 16,
                                   [](int a, int b) { return std::abs(a) < std::abs(b); });
      EXPECT_EQ(std::abs(*most), 127);
    }
    const float* scales = out.scales.data() + 2 * block;
    EXPECT_EQ(out.scaled_sums.data()[3 * block + 2],
              std::fma(scales[1], sums[1], scales[0] * sums[0]));
  }
  for (size_t i = 45; i < 64; ++i) EXPECT_EQ(codes[i], 0);
  EXPECT_EQ(out.scales.data()[3], 0);
}

TEST(QuantizeRow, RoundsTiesToEven) {
  std::vector<float> x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  Output out(8);
  ASSERT_TRUE(out.Run(QuantizeRowReference, x.data(), 8));
  EXPECT_EQ(out.scales.data()[0], 1);
  const int8_t expected[] = {127, 0, 2, 2, 0, -2, -2, 126};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(out.codes.data()[i], expected[i]) << i;
}

TEST(QuantizeRow, ReportsNanAndInfinityAndKeepsItsNeighbours) {
  for (float odd : {kNan, -kNan, kInf, -kInf}) {
    for (Isa isa : AvailableIsas()) {
      std::vector<float> x = RandomRow(96, 1, 2);
      Output clean(96), spoilt(96);
      ASSERT_TRUE(clean.Run(KernelsFor(isa).quantize_row, x.data(), 96));
      x[40] = odd;
      ASSERT_FALSE(spoilt.Run(KernelsFor(isa).quantize_row, x.data(), 96));
      for (size_t i = 0; i < 96; ++i) {
        EXPECT_EQ(spoilt.codes.data()[i], i / 16 == 2 ? 0 : clean.codes.data()[i]);
      }
      EXPECT_EQ(spoilt.scales.data()[2], 0);
      EXPECT_EQ(spoilt.scales.data()[3], clean.scales.data()[3]);
    }
  }
}

}  // namespace
}  // namespace lockstep
