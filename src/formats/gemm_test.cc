#include "formats/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "formats/gemm_entry.h"
#include "simd/isa.h"

namespace lockstep {
namespace {

constexpr float kFence = 12345.0f;

// Activation rows with random codes; scales from tiny to huge.
struct Activations {
  std::vector<int8_t> codes;
  std::vector<float> scales, scaled_sums, x;
  std::vector<int32_t> minus_sums;
  QuantizedRows rows;

  Activations(int64_t tokens, int64_t k, std::mt19937& random) {
    const int64_t padded = (k + 31) / 32 * 32, blocks = padded / 32;
    std::uniform_int_distribution<int> code(-127, 127), exponent(-20, 12);
    std::normal_distribution<float> normal;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t b = 0; b < blocks; ++b) {
        const float scale = std::ldexp(1.0f + static_cast<float>(t % 7) / 8, exponent(random));
        int32_t half[2] = {0, 0};
        for (int i = 0; i < 32; ++i) {
          codes.push_back(static_cast<int8_t>(b == 0 && t == 0 ? (i % 2 ? 127 : -127) : code(random)));
          half[i / 16] += codes.back();
        }
        scales.push_back(scale);
        for (int32_t sum : {half[0], half[1], half[0] + half[1]}) {
          minus_sums.push_back(-sum);
          scaled_sums.push_back(scale * static_cast<float>(sum));
        }
      }
      for (int64_t i = 0; i < k; ++i) x.push_back(normal(random) * 3);
    }
    rows = {codes.data(), scales.data(), minus_sums.data(), scaled_sums.data(), padded, padded};
  }
};

// Random rows as a file could hold them: encoded values, or random bytes with finite scales where there is no encoder.
std::vector<std::byte> RandomRows(const Format& format, int64_t n, int64_t k, std::mt19937& random) {
  std::vector<std::byte> rows(static_cast<size_t>(n * format.RowBytes(k)));
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(format.block));
  std::vector<int8_t> codes(values.size());
  std::vector<float> scales(values.size()), mins(values.size());
  for (size_t at = 0; at < rows.size(); at += format.block_bytes) {
    if (format.encode != nullptr) {
      for (float& v : values) v = normal(random);
      format.encode(values.data(), 1, &rows[at]);
      continue;
    }
    bool finite = false;
    while (!finite) {
      for (int i = 0; i < format.block_bytes; ++i) rows[at + i] = static_cast<std::byte>(random());
      format.integers(&rows[at], codes.data(), scales.data(), mins.data());
      finite = true;
      for (int g = 0; g < format.block / format.group; ++g) {
        finite = finite && std::abs(scales[g]) < 1e6 && (!format.has_min || std::abs(mins[g]) < 1e6);
      }
    }
  }
  return rows;
}

void RunMatMul(Isa isa, const MatMulTask& task) {
#define LOCKSTEP_TRY(name, enumerator) \
  if (isa == Isa::enumerator) return name::MatMul(task);
  LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_TRY)
#undef LOCKSTEP_TRY
}

struct Case {
  int64_t n, k, segment;
};

class GemmOfFormat : public testing::TestWithParam<const Format*> {};

TEST_P(GemmOfFormat, EqualsTheReferenceBitForBitOnEveryInstructionSet) {
  const Format& format = *GetParam();
  std::mt19937 random(format.id);
  const int64_t unit = std::max(format.block, 32);
  std::vector<Case> cases = {{16, unit, 0}, {33, 2 * unit, unit}, {49, 5 * unit, 2 * unit}, {5, 7 * unit, unit}};
  if (format.group == 0) cases = {{16, 1, 0}, {37, 67, 0}, {33, 96, 32}, {50, 330, 64}};
  for (const Case& c : cases) {
    const auto weights = RandomRows(format, c.n, c.k, random);
    PackedMatrix w(format, c.n, c.k);
    std::vector<std::byte> packed(static_cast<size_t>(w.bytes()) + 64);
    w.data = packed.data();
    ASSERT_FALSE(PackPanels(weights.data(), 0, w.panels(), w));
    for (int64_t tokens : {1, 2, 3, 7, 8, 9, 33, 131}) {
      if (tokens == 131 && c.n != 33) continue;
      Activations a(tokens, c.k, random);
      std::vector<float> expected(static_cast<size_t>(tokens * c.n));
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < c.n; ++row) {
          const std::byte* at = weights.data() + row * format.RowBytes(c.k);
          expected[t * c.n + row] = format.group == 0
                                        ? MatMulReference(format, at, c.k, c.segment, a.x.data() + t * c.k)
                                        : MatMulReference(format, at, c.k, c.segment, a.rows.From(t));
        }
      }
      for (Isa isa : AvailableIsas()) {
        std::vector<float> y(static_cast<size_t>(tokens * (c.n + 3)), kFence);
        std::vector<std::byte> scratch(kMatMulScratchBytes + 64);
        MatMulTask task{&w, a.rows, a.x.data(), c.k, tokens, y.data(), c.n + 3, c.segment, 0, w.panels(), scratch.data()};
        // Two members of a team take a part each.
        const int64_t middle = w.panels() / 2;
        task.panel_end = middle;
        RunMatMul(isa, task);
        task.panel_begin = middle, task.panel_end = w.panels();
        RunMatMul(isa, task);
        for (int64_t t = 0; t < tokens; ++t) {
          ASSERT_EQ(0, std::memcmp(&y[t * (c.n + 3)], &expected[t * c.n], c.n * sizeof(float)))
              << IsaName(isa) << " n=" << c.n << " k=" << c.k << " tokens=" << tokens << " row " << t
              << " first " << y[t * (c.n + 3)] << " expected " << expected[t * c.n];
          for (int i = 0; i < 3; ++i) ASSERT_EQ(kFence, y[t * (c.n + 3) + c.n + i]);
        }
      }
    }
  }
}

std::vector<const Format*> MatrixFormats() {
  std::vector<const Format*> formats;
  for (const Format* format : AllFormats()) {
    if (format->group != 0 || format->name == "F32" || format->name == "F16" || format->name == "BF16") {
      formats.push_back(format);
    }
  }
  return formats;
}

INSTANTIATE_TEST_SUITE_P(AllFormats, GemmOfFormat, testing::ValuesIn(MatrixFormats()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Packing, NamesTheRowAndColumnOfAWeightThatIsNotFinite) {
  const Format& format = *FindFormat("Q8_0");
  std::vector<float> values(20 * 96, 1.0f);
  std::vector<std::byte> rows(20 * static_cast<size_t>(format.RowBytes(96)));
  format.encode(values.data(), 20 * 3, rows.data());
  const uint16_t infinity = 0x7C00;
  std::memcpy(&rows[17 * format.RowBytes(96) + 2 * format.block_bytes], &infinity, 2);
  PackedMatrix w(format, 20, 96);
  std::vector<std::byte> packed(static_cast<size_t>(w.bytes()));
  w.data = packed.data();
  auto bad = PackPanels(rows.data(), 0, w.panels(), w);
  ASSERT_TRUE(bad);
  EXPECT_EQ(17, bad->row);
  EXPECT_EQ(64, bad->column);
}

TEST(Packing, TakesAtMostFourPercentMoreThanTheFile) {
  for (const Format* format : MatrixFormats()) {
    PackedMatrix w(*format, 1024, 1024);
    EXPECT_LE(w.bytes(), 1024 * format->RowBytes(1024) * 104 / 100) << format->name;
  }
}

TEST(SegmentTree, GivesAnyContiguousRunOfSegmentsWholeSubtrees) {
  // A rank with segments [a, b) reduces the aligned subtrees inside; the roots then meet as in the whole tree.
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t count = 1; count <= 64; ++count) {
    std::vector<float> v(count);
    for (float& x : v) x = normal(random);
    std::vector<float> counter;  // the binary counter that kernels use
    for (size_t i = 0; i < count; ++i) {
      float sum = v[i];
      for (size_t bits = i; bits & 1; bits >>= 1) sum = counter.back() + sum, counter.pop_back();
      counter.push_back(sum);
    }
    float sum = counter.back();
    for (size_t at = counter.size() - 1; at-- > 0;) sum = counter[at] + sum;
    EXPECT_EQ(sum, SegmentTree(v)) << count;
  }
}

TEST(SegmentLength, DependsOnSizeAndUnitAndNeverExceedsTheTree) {
  struct Row { int64_t size, unit, length; };
  for (const Row& row : {Row{96, 32, 32}, {1536, 32, 128}, {2048, 256, 256}, {14336, 256, 256}, {28672, 256, 512},
                         {100, 1, 12}, {5, 8, 8}, {1 << 20, 32, 1 << 14}}) {
    EXPECT_EQ(row.length, SegmentLength(row.size, row.unit)) << row.size;
    EXPECT_LE((row.size + row.length - 1) / row.length, kMaxSegments);
  }
}

}  // namespace
}  // namespace lockstep
