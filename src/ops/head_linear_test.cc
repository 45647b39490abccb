#include "ops/head_linear.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/concat.h"
#include "ops/quantize_row.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::Fenced;
using testing::FirstDifference;
using testing::RandomRow;

constexpr int64_t kHeads = 5, kTokens = 9;

// Packed weights [kHeads, n, k] and the rows that they were packed from.
struct HeadWeight {
  std::vector<PackedMatrix> matrices;
  std::vector<std::byte> rows;
  std::vector<std::vector<std::byte>> packed;

  HeadWeight(const Format& format, int64_t n, int64_t k) {
    const std::vector<float> values = RandomRow(kHeads * n * k, 1, 3);
    const int64_t head_bytes = n * format.RowBytes(k);
    rows.resize(static_cast<size_t>(kHeads * head_bytes));
    format.encode(values.data(), kHeads * n * k / format.block, rows.data());
    for (int64_t h = 0; h < kHeads; ++h) {
      matrices.emplace_back(format, n, k);
      packed.emplace_back(static_cast<size_t>(matrices.back().bytes()) + 4096);
      matrices.back().data = packed.back().data();
      EXPECT_FALSE(PackPanels(rows.data() + h * head_bytes, 0, matrices.back().panels(), matrices.back()).has_value());
    }
  }
};

// The codes of rows [t, width].
struct Codes {
  std::vector<std::byte> bytes;
  QuantizedRows rows;

  Codes(const std::vector<float>& x, int64_t width) {
    const int64_t tokens = std::ssize(x) / width;
    bytes.resize(static_cast<size_t>(QuantizedRows::Bytes(tokens, width)));
    rows = QuantizedRows::At(bytes.data(), tokens, width);
    for (int64_t t = 0; t < tokens; ++t) {
      QuantizeRowReference(x.data() + t * width, width, RowPart(rows, t, 0));
    }
  }
};

std::vector<float> ResultOf(const Operation& op, std::vector<Operand> in, int64_t width, Isa isa, int members) {
  Fenced<float> y(std::vector<float>(static_cast<size_t>(kTokens * width), testing::kNan));
  const std::vector<Operand> out = {Rows{y.data(), width}};
  std::vector<AttentionRow> places(kTokens);
  std::vector<std::byte> scratch(op.scratch_bytes(in, kTokens) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  FaultLog faults(kTokens);
  for (int member = 0; member < members; ++member) {
    op.Run({KernelsFor(isa), member, members, op.split(), in, out, {{}, places}, {}, {aligned, scratch.size() - 64}, &faults, 0});
  }
  EXPECT_TRUE(y.intact());
  return y.values();
}

TEST(HeadLinear, MultipliesEveryHeadByItsOwnMatrix) {
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "IQ4_NL"}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{16, 32}, {24, 96}, {5, 32}, {512, 128}}) {
      SCOPED_TRACE(fmt::format("{} n {} k {}", type, n, k));
      const Format& format = *FindFormat(type);
      const HeadWeight weight(format, n, k);
      std::vector<float> x = RandomRow(kTokens * kHeads * k, 2, 4);
      const Codes codes(x, kHeads * k);
      std::vector<float> expected;
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t row = 0; row < kHeads * n; ++row) {
          const std::byte* bytes = weight.rows.data() + row * format.RowBytes(k);
          const int64_t at = row / n * k;
          const QuantizedRows head = codes.rows.From(t).FromColumn(at);
          expected.push_back(SegmentTree(format.group != 0
                                             ? SegmentSums(format, bytes, k, 0, head)
                                             : SegmentSums(format, bytes, k, 0, x.data() + t * kHeads * k + at)));
        }
      }
      const OperationPtr op = n == 24 ? MakeGroupedLinear() : MakeHeadLinear();
      const Operand input = format.group != 0 ? Operand(codes.rows) : Operand(Rows{x.data(), kHeads * k});
      for (Isa isa : AvailableIsas()) {
        for (int members : {1, 2, 3, 7}) {
          SCOPED_TRACE(fmt::format("{} {} members", IsaName(isa), members));
          ASSERT_EQ(FirstDifference(expected, ResultOf(*op, {input, Experts(weight.matrices)}, kHeads * n, isa, members)), -1);
        }
      }
    }
  }
}

TEST(Concat, PutsTheSecondValueAfterTheFirstInEveryHead) {
  std::vector<float> x = RandomRow(kTokens * kHeads * 3, 1, 1), z = RandomRow(kTokens * kHeads * 2, 1, 2), expected;
  for (int64_t row = 0; row < kTokens * kHeads; ++row) {
    expected.insert(expected.end(), x.begin() + row * 3, x.begin() + row * 3 + 3);
    expected.insert(expected.end(), z.begin() + row * 2, z.begin() + row * 2 + 2);
  }
  const std::vector<Operand> in = {Rows{x.data(), kHeads * 3}, Rows{z.data(), kHeads * 2}};
  for (int members : {1, 4}) {
    EXPECT_EQ(ResultOf(*MakeConcat(3, 2), in, kHeads * 5, BestIsa(), members), expected);
  }
}

}  // namespace
}  // namespace lockstep
