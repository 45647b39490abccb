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
        float sum_x = 0;
        for (int half = 0; half < 2; ++half) {
          const float scale = std::ldexp(1.0f + static_cast<float>(t % 7) / 8, exponent(random));
          int32_t sum = 0;
          for (int i = 0; i < 16; ++i) {
            codes.push_back(static_cast<int8_t>(b == 0 && t == 0 ? (i % 2 ? 127 : -127) : code(random)));
            sum += codes.back();
          }
          scales.push_back(scale);
          minus_sums.push_back(-sum);
          scaled_sums.push_back(scale * static_cast<float>(sum));
          sum_x = half == 0 ? scaled_sums.back() : std::fma(scale, static_cast<float>(sum), sum_x);
        }
        scaled_sums.push_back(sum_x);
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

// The sums of all segments of one output.
std::vector<float> Sums(const Format& format, const std::byte* row, const Case& c, const Activations& a, int64_t t) {
  return format.group == 0 ? SegmentSums(format, row, c.k, c.segment, a.x.data() + t * c.k)
                           : SegmentSums(format, row, c.k, c.segment, a.rows.From(t));
}

// All panels, rows of y fenced by three elements.
MatMulTask TaskOf(const PackedMatrix& w, const Case& c, const Activations& a, int64_t tokens, std::vector<float>& y,
                  std::vector<std::byte>& scratch) {
  MatMulTask task{};
  task.w = &w;
  task.q = a.rows;
  task.x = a.x.data();
  task.x_stride = c.k;
  task.tokens = tokens;
  task.y = y.data();
  task.y_stride = c.n + 3;
  task.segment = c.segment;
  task.panel_end = w.panels();
  task.scratch = scratch.data();
  return task;
}

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
          expected[t * c.n + row] = SegmentTree(Sums(format, at, c, a, t));
        }
      }
      for (Isa isa : AvailableIsas()) {
        std::vector<float> y(static_cast<size_t>(tokens * (c.n + 3)), kFence);
        std::vector<std::byte> scratch(kMatMulScratchBytes + 64);
        MatMulTask task = TaskOf(w, c, a, tokens, y, scratch);
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

// A run of a weight's segments, and where the weight lies in the whole tree.
struct RunCase {
  int64_t begin, end, first_leaf, leaves;
  bool apart;
};

TEST_P(GemmOfFormat, GivesTheRootsOfARunOfSegments) {
  const Format& format = *GetParam();
  std::mt19937 random(format.id);
  const int64_t unit = std::max(format.block, 32);
  // Seven segments, of which the last is half as long.
  const Case c = {33, 13 * unit, 2 * unit};
  const auto weights = RandomRows(format, c.n, c.k, random);
  PackedMatrix w(format, c.n, c.k);
  std::vector<std::byte> packed(static_cast<size_t>(w.bytes()) + 64), scratch(kMatMulScratchBytes + 64);
  w.data = packed.data();
  ASSERT_FALSE(PackPanels(weights.data(), 0, w.panels(), w));
  for (int64_t tokens : {1, 3, 9}) {
    Activations a(tokens, c.k, random);
    for (const RunCase& run : {RunCase{0, 0, 0, 0, false}, {0, 7, 0, 7, false}, {1, 6, 0, 0, false}, {3, 4, 0, 0, false},
                               {6, 7, 0, 7, false}, {0, 0, 5, 20, false}, {2, 7, 13, 20, false}, {0, 0, 0, 0, true},
                               {2, 5, 1, 9, true}}) {
      const int64_t begin = run.begin, end = run.end == 0 ? 7 : run.end, first = run.first_leaf;
      std::vector<LeafRange> roots = SubtreeRoots(first + begin, first + end, run.leaves == 0 ? 7 : run.leaves);
      if (run.apart) {
        roots.clear();
        for (int64_t s = begin; s < end; ++s) roots.push_back({first + s, first + s + 1});
      }
      for (Isa isa : AvailableIsas()) {
        const int64_t stride = tokens * (c.n + 3) + 5;
        std::vector<float> y(roots.size() * static_cast<size_t>(stride), kFence);
        MatMulTask task = TaskOf(w, c, a, tokens, y, scratch);
        task.root_stride = stride;
        task.segment_begin = run.begin, task.segment_end = run.end;
        task.first_leaf = first, task.leaves = run.leaves, task.apart = run.apart;
        RunMatMul(isa, task);
        std::vector<float> expected(y.size(), kFence);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t row = 0; row < c.n; ++row) {
            const auto sums = Sums(format, weights.data() + row * format.RowBytes(c.k), c, a, t);
            for (size_t r = 0; r < roots.size(); ++r) {
              const size_t leaf = static_cast<size_t>(roots[r].first - first);
              const size_t count = static_cast<size_t>(roots[r].last - roots[r].first);
              expected[r * stride + t * (c.n + 3) + row] = SegmentTree(std::span(sums).subspan(leaf, count));
            }
          }
        }
        ASSERT_EQ(0, std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)))
            << IsaName(isa) << " segments " << begin << " .. " << end << " tokens " << tokens;
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
