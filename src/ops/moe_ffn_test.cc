#include "ops/moe_ffn.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "ops/expert_weights.h"
#include "ops/operations.h"
#include "ops/quantize_row.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

// Rows as a file could hold them: encoded values, or random bytes with finite scales where there is no encoder.
std::vector<std::byte> RandomWeights(const Format& format, int64_t count, std::mt19937& random,
                                     float size = 1) {
  std::vector<std::byte> bytes(static_cast<size_t>(format.RowBytes(count)));
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(static_cast<size_t>(format.block)), scales(values), mins(values);
  std::vector<int8_t> codes(values.size());
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(format.block_bytes)) {
    if (format.encode != nullptr) {
      for (float& v : values) v = normal(random);
      format.encode(values.data(), 1, &bytes[at]);
      continue;
    }
    for (bool small = false; !small;) {
      for (int i = 0; i < format.block_bytes; ++i) bytes[at + i] = static_cast<std::byte>(random());
      format.integers(&bytes[at], codes.data(), scales.data(), mins.data());
      small = true;
      for (int g = 0; g < format.block / format.group; ++g)
        small &= std::abs(scales[g]) < 4 && (!format.has_min || std::abs(mins[g]) < 4);
    }
  }
  return bytes;
}

// Experts in the file's form and packed.
struct ExpertSet {
  ExpertRows rows;
  std::vector<std::byte> bytes;
  std::vector<PackedMatrix> packed;
  std::vector<Buffer> buffers;

  ExpertSet(const Format& format, int64_t experts, int64_t n, int64_t k, std::mt19937& random,
            float size = 1)
      : bytes(RandomWeights(format, experts * n * k, random, size)) {
    rows = {&format, bytes.data(), experts, n, k};
    Pack(0, experts, 0, n, 0, k);
  }
  // A part of another's experts, rows and columns.
  ExpertSet(const ExpertSet& whole, LeafRange experts, LeafRange n, LeafRange k) {
    rows = whole.rows;
    Pack(experts.first, experts.last, n.first, n.last, k.first, k.last);
  }

 private:
  void Pack(int64_t e0, int64_t e1, int64_t n0, int64_t n1, int64_t k0, int64_t k1) {
    const Format& format = *rows.format;
    for (int64_t e = e0; e < e1; ++e) {
      std::vector<std::byte> part;
      for (int64_t n = n0; n < n1; ++n) {
        const std::byte* row = rows.Row(e, n);
        part.insert(part.end(), row + format.RowBytes(k0), row + format.RowBytes(k1));
      }
      PackedMatrix matrix(format, n1 - n0, k1 - k0);
      // Kernels prefetch past the end.
      buffers.emplace_back(Size(static_cast<uint64_t>(matrix.bytes())) + Size(4096));
      matrix.data = buffers.back().data();
      ASSERT_FALSE(PackPanels(part.data(), 0, matrix.panels(), matrix));
      packed.push_back(matrix);
    }
  }
};

struct Dims {
  int64_t experts, used, k, f, n;
};

// A layer's experts with everything they may have.
struct Layer {
  MoeSettings settings;
  Dims dims;
  ExpertSet gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;

  Layer(const MoeSettings& of, const Dims& d, const Format& up_format, const Format& down_format,
        uint32_t seed)
      : settings(of),
        dims(d),
        gate(up_format, d.experts, d.f, d.k, Random(seed), Fan(d.k)),
        up(up_format, d.experts, d.f, d.k, Random(seed + 1), Fan(d.k)),
        down(down_format, d.experts, d.n, d.f, Random(seed + 2), Fan(d.f)),
        gate_bias(testing::RandomRow(d.experts * d.f, 1, seed + 3)),
        up_bias(testing::RandomRow(d.experts * d.f, 1, seed + 4)),
        down_bias(testing::RandomRow(d.experts * d.n, 1, seed + 5)) {}

  static std::mt19937& Random(uint32_t seed) {
    static std::mt19937 random;
    random.seed(seed);
    return random;
  }
  static float Fan(int64_t k) { return 1 / std::sqrt(static_cast<float>(k)); }

  MoeReferenceWeights Reference() const {
    return {gate.rows, up.rows, down.rows, gate_bias.data(), up_bias.data(), down_bias.data()};
  }
  bool coded() const { return up.packed[0].quantized(); }
};

// What arrives at a layer.
struct Input {
  std::vector<float> x, ids, weights;

  Input(const Dims& dims, int64_t tokens, uint32_t seed) {
    std::mt19937 random(seed);
    x = testing::RandomRow(tokens * dims.k, 1, seed);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<float> all(static_cast<size_t>(dims.experts));
      for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<float>(e);
      std::shuffle(all.begin(), all.end(), random);
      // Some experts are popular.
      if (t % 3 == 0) std::swap(all[0], *std::ranges::find(all, 1.0f));
      ids.insert(ids.end(), all.begin(), all.begin() + dims.used);
    }
    std::uniform_real_distribution<float> uniform(0.05f, 2);
    for (size_t i = 0; i < ids.size(); ++i) weights.push_back(uniform(random));
  }
};

struct Result {
  std::vector<float> y;
  std::vector<int32_t> faults;
};

struct RunOptions {
  Isa isa = BestIsa();
  int members = 1;
  MoePart part = {};
  int64_t roots = 1;
};

// Runs the operation on packed operands, rows [first, last) of the input.
Result RunStep(const Layer& layer, const Input& input, int64_t first, int64_t last,
               const RunOptions& options, const ExpertSet* gate, const ExpertSet* up,
               const ExpertSet* down, std::span<const float> gate_bias,
               std::span<const float> up_bias, std::span<const float> down_bias) {
  const Dims& d = layer.dims;
  const int64_t tokens = last - first, width = RoundUp(d.k, kBlockK);
  std::vector<float> x(input.x.begin() + first * d.k, input.x.begin() + last * d.k),
      ids(input.ids.begin() + first * d.used, input.ids.begin() + last * d.used),
      weights(input.weights.begin() + first * d.used, input.weights.begin() + last * d.used);
  Buffer codes(Size(static_cast<uint64_t>(QuantizedRows::Bytes(tokens, width))) + Size(64));
  std::vector<Operand> in;
  if (layer.coded()) {
    const QuantizedRows q = QuantizedRows::At(codes.data(), tokens, width);
    for (int64_t t = 0; t < tokens; ++t)
      QuantizeRowReference(x.data() + t * d.k, d.k, RowPart(q, t, 0));
    in.push_back(q);
  } else {
    in.push_back(Rows{x.data(), d.k});
  }
  in.push_back(Rows{ids.data(), d.used});
  in.push_back(Rows{weights.data(), d.used});
  if (layer.settings.gated) in.push_back(Experts(gate->packed));
  in.push_back(Experts(up->packed));
  in.push_back(Experts(down->packed));
  if (layer.settings.biases) {
    if (layer.settings.gated) in.push_back(gate_bias);
    in.push_back(up_bias);
    in.push_back(down_bias);
  }
  Result result;
  result.y.assign(static_cast<size_t>(tokens * d.n * options.roots), testing::kNan);
  const std::vector<Operand> out = {Rows{result.y.data(), d.n * options.roots}};
  const OperationPtr op = MakeMoeFfn(layer.settings, options.part);
  std::vector<int32_t> batch_tokens(static_cast<size_t>(tokens)), index(batch_tokens.size());
  std::vector<AttentionRow> places(batch_tokens.size());
  for (size_t t = 0; t < index.size(); ++t) index[t] = static_cast<int32_t>(t);
  FaultLog faults(tokens);
  ThreadTeam team(options.members);
  Buffer shared(Size(op->shared_bytes(in, tokens)) + Size(64));
  const size_t scratch_bytes = op->scratch_bytes(in, tokens);
  std::vector<Buffer> scratch;
  for (int m = 0; m < options.members; ++m) scratch.emplace_back(Size(scratch_bytes) + Size(64));
  team.Run([&](int member) {
    op->Run({KernelsFor(options.isa),
             member,
             options.members,
             Split::kColumns,
             in,
             out,
             {batch_tokens, places},
             index,
             scratch[static_cast<size_t>(member)].bytes(),
             &faults,
             7,
             shared.bytes(),
             &team});
  });
  for (int32_t t = 0; t < tokens; ++t) result.faults.push_back(faults.step(t));
  return result;
}

Result RunStep(const Layer& layer, const Input& input, int64_t first, int64_t last,
               const RunOptions& options = {}) {
  return RunStep(layer, input, first, last, options, &layer.gate, &layer.up, &layer.down,
                 layer.gate_bias, layer.up_bias, layer.down_bias);
}

std::vector<float> Expected(const Layer& layer, const Input& input, int64_t tokens) {
  const Dims& d = layer.dims;
  std::vector<float> y(static_cast<size_t>(tokens * d.n));
  for (int64_t t = 0; t < tokens; ++t) {
    MoeFfnReference(layer.settings, layer.Reference(), input.x.data() + t * d.k,
                    input.ids.data() + t * d.used, input.weights.data() + t * d.used, d.used,
                    y.data() + t * d.n);
  }
  return y;
}

const Format& Named(std::string_view name) { return *FindFormat(name); }

MoeSettings GptOss() {
  MoeSettings settings;
  settings.gating = {Activation::kGeluQuick, 7, testing::kInf, 7, 1};
  settings.biases = true;
  return settings;
}

struct Kind {
  std::string name;
  MoeSettings settings;
};
std::vector<Kind> Kinds() {
  return {{"swiglu", {}},
          {"clamped, biased", GptOss()},
          {"ungated", {{.activation = Activation::kReluSquared}, false, false, false}},
          {"ungated, biased", {{.activation = Activation::kGeluTanh}, false, true, false}},
          {"weighs its input", {{}, true, true, true}}};
}

TEST(MoeFfn, EqualsItsReferenceForEveryKindInstructionSetAndTeam) {
  // Widths of no whole panel, of one segment and of several.
  for (const Dims& d : {Dims{7, 3, 64, 96, 40}, Dims{4, 1, 32, 320, 64}, Dims{5, 5, 96, 32, 24}}) {
    for (const Kind& kind : Kinds()) {
      for (const auto& [up, down] : {std::pair("Q8_0", "Q4_0"), std::pair("F32", "F32"),
                                     std::pair("Q4_1", "F16"), std::pair("BF16", "Q8_0")}) {
        const Layer layer(kind.settings, d, Named(up), Named(down), 11);
        const Input input(d, 21, 5);
        const std::vector<float> expected = Expected(layer, input, 21);
        for (Isa isa : AvailableIsas()) {
          for (int members : {1, 3}) {
            SCOPED_TRACE(fmt::format("{}, {} up and {} down, {} experts, {}, {} threads", kind.name,
                                     up, down, d.experts, IsaName(isa), members));
            ASSERT_EQ(
                testing::FirstDifference(
                    RunStep(layer, input, 0, 21, {.isa = isa, .members = members}).y, expected),
                -1);
          }
        }
      }
    }
  }
}

TEST(MoeFfn, GivesARowTheSameBitsInAnyBatchInEveryFormat) {
  const Dims d{6, 2, 256, 512, 48};
  for (std::string_view name :
       {"F16", "IQ1_M", "TQ1_0", "TQ2_0", "MXFP4", "Q4_K", "Q8_0", "Q6_K"}) {
    SCOPED_TRACE(name);
    const Layer layer({}, d, Named(name), Named(name), 21);
    const Input input(d, 512, 6);
    const std::vector<float> all = RunStep(layer, input, 0, 512, {.members = 2}).y;
    for (float v : all) ASSERT_TRUE(std::isfinite(v));
    for (int64_t batch : {1, 8, 9, 33, 64}) {
      for (int64_t first : {int64_t{0}, 512 - batch}) {
        const std::vector<float> expected(all.begin() + first * d.n,
                                          all.begin() + (first + batch) * d.n);
        ASSERT_EQ(testing::FirstDifference(RunStep(layer, input, first, first + batch).y, expected),
                  -1)
            << batch << " rows from " << first;
      }
    }
  }
}

TEST(MoeFfn, LetsNoRowTouchAnotherAtAnyMagnitude) {
  const Dims d{4, 2, 64, 128, 32};
  for (std::string_view name : {"Q4_0", "Q8_0", "F32"}) {
    const Layer layer({}, d, Named(name), Named(name), 31);
    Input input(d, 16, 7);
    for (int64_t i = 0; i < 16 * d.k; ++i) input.x[static_cast<size_t>(i)] *= 1e-3f;
    const std::vector<float> quiet = RunStep(layer, input, 0, 16).y;
    for (int64_t i = 0; i < d.k; ++i) input.x[static_cast<size_t>(5 * d.k + i)] *= 3e8f;
    const std::vector<float> loud = RunStep(layer, input, 0, 16).y;
    for (int64_t t = 0; t < 16; ++t) {
      const bool same =
          std::memcmp(&quiet[static_cast<size_t>(t * d.n)], &loud[static_cast<size_t>(t * d.n)],
                      4 * static_cast<size_t>(d.n)) == 0;
      EXPECT_EQ(same, t != 5) << name << ' ' << t;
    }
    for (float v : loud) ASSERT_TRUE(std::isfinite(v)) << name;
  }
}

// Block sums far above what a 16-bit float holds: an ungated square of large numbers, scaled by powers of two, which are exact.
TEST(MoeFfn, IsAsAccurateForHugeRowsAsForSmallOnes) {
  const Dims d{4, 2, 256, 256, 32};
  MoeSettings settings;
  settings.gated = false;
  settings.gating.activation = Activation::kRelu;
  for (std::string_view name : {"Q4_0", "Q8_0", "MXFP4", "IQ1_M", "TQ1_0", "TQ2_0", "F16"}) {
    const Layer layer(settings, d, Named(name), Named(name), 41);
    const Input input(d, 9, 8);
    const std::vector<float> small = RunStep(layer, input, 0, 9).y;
    for (int exponent : {18, 60, -60, -100}) {
      Input scaled = input;
      for (float& v : scaled.x) v = std::ldexp(v, exponent);
      const std::vector<float> y = RunStep(layer, scaled, 0, 9).y;
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(y[i], std::ldexp(small[i], exponent)) << name << ' ' << exponent;
    }
  }
}

// Row `r` of an expert as its format decodes it, times x.
double Dot(const ExpertRows& rows, int64_t expert, int64_t r, std::span<const double> x) {
  std::vector<float> row(static_cast<size_t>(RoundUp(rows.width, rows.format->block)));
  rows.format->decode(rows.Row(expert, r), std::ssize(row) / rows.format->block, row.data());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
  return sum;
}

// SwiGLU experts without biases for one token, in double.
std::vector<double> InDouble(const Layer& layer, const Input& input, int64_t t) {
  const Dims& d = layer.dims;
  const auto begin = input.x.begin() + t * d.k;
  const std::vector<double> x(begin, begin + d.k);
  std::vector<double> y(static_cast<size_t>(d.n));
  for (int64_t slot = t * d.used; slot < (t + 1) * d.used; ++slot) {
    const auto expert = static_cast<int64_t>(input.ids[static_cast<size_t>(slot)]);
    std::vector<double> h;
    for (int64_t f = 0; f < d.f; ++f) {
      const double g = Dot(layer.gate.rows, expert, f, x), u = Dot(layer.up.rows, expert, f, x);
      h.push_back(input.weights[static_cast<size_t>(slot)] * g / (1 + std::exp(-g)) * u);
    }
    for (size_t n = 0; n < y.size(); ++n)
      y[n] += Dot(layer.down.rows, expert, static_cast<int64_t>(n), h);
  }
  return y;
}

double RelativeError(std::span<const float> y, std::span<const double> exact) {
  double squares = 0, errors = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    squares += exact[i] * exact[i];
    errors += (y[i] - exact[i]) * (y[i] - exact[i]);
  }
  return std::sqrt(errors / squares);
}

// The hidden row of the loud token is near 1e11 and its block sums beyond, that of the others near
// 1e-6: both ends of what a 16-bit scale or sum would lose.
TEST(MoeFfn, StaysAccurateForARowOf3e5BesideRowsOf1em3InEveryFormatAndBatch) {
  const Dims d{6, 2, 256, 512, 48};
  for (std::string_view name :
       {"F16", "BF16", "IQ1_M", "TQ1_0", "TQ2_0", "MXFP4", "Q4_K", "Q8_0"}) {
    const Layer layer({}, d, Named(name), Named(name), 91);
    Input input(d, 512, 12);
    for (float& v : input.x) v *= 1e-3f;
    const std::vector<float> quiet = RunStep(layer, input, 0, 512).y;
    for (int64_t batch : {1, 8, 9, 33, 64, 512}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", name, batch));
      const int64_t loud = batch / 2;
      Input mixed = input;
      for (int64_t i = loud * d.k; i < (loud + 1) * d.k; ++i)
        mixed.x[static_cast<size_t>(i)] *= 3e8f;
      const std::vector<float> y = RunStep(layer, mixed, 0, batch, {.members = 2}).y;
      for (int64_t t = 0; t < batch; ++t) {
        const std::span row =
            std::span(y).subspan(static_cast<size_t>(t * d.n), static_cast<size_t>(d.n));
        ASSERT_EQ(std::ranges::equal(
                      row, std::span(quiet).subspan(static_cast<size_t>(t * d.n), row.size())),
                  t != loud)
            << t;
        if (t != loud && t != batch - 1) continue;
        for (float v : row) ASSERT_TRUE(std::isfinite(v));
        // A code is off by at most 1/254 of the largest of its 16 numbers, which is at most 4 times
        // their quadratic mean; gate, up and down see one such rounding each.
        EXPECT_LT(RelativeError(row, InDouble(layer, mixed, t)), 3 * 4 / 254.0) << t;
      }
    }
  }
}

// Every contiguous split of the experts, or of f, gives the bits of the whole: the design's promise for plans.
TEST(MoeFfn, GivesTheSameBitsHoweverExpertsOrTheirWidthAreSplit) {
  const Dims d{11, 4, 64, 288, 40};
  for (const Kind& kind : Kinds()) {
    const Layer layer(kind.settings, d, Named("Q8_0"), Named("Q4_0"), 51);
    const Input input(d, 13, 9);
    const std::vector<float> expected = Expected(layer, input, 13);
    const int64_t segment = MoeSegmentLength(Named("Q4_0"), d.f), segments = d.f / segment;
    ASSERT_GE(segments, 8);
    std::mt19937 random(1);
    for (int round = 0; round < 24; ++round) {
      const bool by_expert = round % 2 == 0;
      const int64_t units = by_expert ? d.experts : segments;
      // Runs may be empty: such a rank has nothing to run.
      std::vector<int64_t> cuts = {0, units};
      for (int i = 0; i < 1 + round / 2 % 3; ++i)
        cuts.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(units + 1)));
      std::ranges::sort(cuts);
      SCOPED_TRACE(fmt::format("{}, {} cut at {}, {}", kind.name, by_expert ? "experts" : "f",
                               cuts[1], cuts[2]));
      // Roots by [segment run][rank's rows]
      std::vector<std::vector<LeafRange>> roots(by_expert ? static_cast<size_t>(segments) : 1);
      std::vector<std::vector<std::vector<float>>> values(roots.size());
      for (size_t r = 0; r + 1 < cuts.size(); ++r) {
        const LeafRange run = {cuts[r], cuts[r + 1]};
        if (run.first == run.last) continue;
        const LeafRange experts = by_expert ? run : LeafRange{0, d.experts};
        const LeafRange f =
            by_expert ? LeafRange{0, d.f} : LeafRange{run.first * segment, run.last * segment};
        const ExpertSet gate(layer.gate, experts, f, {0, d.k}), up(layer.up, experts, f, {0, d.k}),
            down(layer.down, experts, {0, d.n}, f);
        std::vector<float> gate_bias, up_bias;
        for (int64_t e = experts.first; e < experts.last; ++e) {
          const auto from = e * d.f + f.first, to = e * d.f + f.last;
          gate_bias.insert(gate_bias.end(), layer.gate_bias.begin() + from,
                           layer.gate_bias.begin() + to);
          up_bias.insert(up_bias.end(), layer.up_bias.begin() + from, layer.up_bias.begin() + to);
        }
        const std::vector<LeafRange> own = SubtreeRoots(run.first, run.last, units);
        RunOptions options;
        options.members = 2;
        options.part = {experts,
                        by_expert ? d.experts : 0,
                        {by_expert ? LeafRange{0, segments} : run, segments, segment}};
        options.roots = std::ssize(own) * (by_expert ? segments : 1);
        const std::vector<float> y =
            RunStep(layer, input, 0, 13, options, &gate, &up, &down, gate_bias, up_bias,
                    std::span(layer.down_bias).subspan(static_cast<size_t>(experts.first * d.n)))
                .y;
        for (size_t s = 0; s < roots.size(); ++s) {
          for (size_t i = 0; i < own.size(); ++i) {
            roots[s].push_back(own[i]);
            std::vector<float> column;
            for (int64_t t = 0; t < 13; ++t) {
              const auto at = y.begin() + (static_cast<int64_t>(s * own.size() + i) * 13 + t) * d.n;
              column.insert(column.end(), at, at + d.n);
            }
            values[s].push_back(column);
          }
        }
      }
      std::vector<std::vector<float>> sums;
      for (size_t s = 0; s < roots.size(); ++s) {
        std::vector<const float*> rows;
        for (const auto& column : values[s]) rows.push_back(column.data());
        sums.emplace_back(static_cast<size_t>(13 * d.n));
        CombineRootsReference(RootFold(roots[s], units), rows.data(), 13 * d.n, sums.back().data());
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        std::vector<float> terms;
        for (const auto& sum : sums) terms.push_back(sum[i]);
        ASSERT_EQ(SegmentTree(terms), expected[i]) << i;
      }
    }
  }
}

TEST(MoeFfn, ReportsRowsWithIdsOfNoExpertAndCarriesOn) {
  const Dims d{4, 2, 32, 32, 32};
  const Layer layer({}, d, Named("Q8_0"), Named("Q8_0"), 61);
  for (float bad : {-1.0f, 4.0f, 1e30f, testing::kNan, testing::kInf, -testing::kInf}) {
    Input input(d, 5, 3);
    const std::vector<float> expected = RunStep(layer, input, 0, 5).y;
    input.ids[2 * 2 + 1] = bad;
    const Result result = RunStep(layer, input, 0, 5, {.members = 3});
    EXPECT_EQ(result.faults, (std::vector<int32_t>{-1, -1, 7, -1, -1}));
    for (int64_t t : {0, 1, 3, 4}) {
      EXPECT_TRUE(std::equal(expected.begin() + t * d.n, expected.begin() + (t + 1) * d.n,
                             result.y.begin() + t * d.n));
    }
  }
}

TEST(MoeFfn, ReportsRowsThatOverflow) {
  const Dims d{4, 2, 32, 32, 32};
  const Layer layer({}, d, Named("Q8_0"), Named("Q8_0"), 71);
  Input input(d, 3, 3);
  for (int64_t i = 0; i < d.k; ++i) input.x[static_cast<size_t>(d.k + i)] *= 1e25f;
  EXPECT_EQ(RunStep(layer, input, 0, 3).faults, (std::vector<int32_t>{-1, 7, -1}));
}

// A table may send a token to one expert twice.
TEST(MoeFfn, CountsAnExpertInTwoSlotsTwice) {
  const Dims d{6, 4, 32, 64, 32};
  const Layer layer({}, d, Named("Q8_0"), Named("F32"), 81);
  Input input(d, 3, 3);
  input.ids = {3, 1, 3, 3, 2, 2, 2, 2, 5, 0, 5, 0};
  EXPECT_EQ(testing::FirstDifference(RunStep(layer, input, 0, 3).y, Expected(layer, input, 3)), -1);
}

TEST(FoldExperts, EqualsItsReferenceAndLeavesTokensWithoutExpertsAtMinusZero) {
  const std::vector<float> leaves = testing::RandomRow(6 * kColumnsOfFold, 1, 4);
  const std::vector<int32_t> begin = {0, 4, 4, 5, 6}, rows = {5, 0, 2, 3, 1, 4};
  const std::vector<uint8_t> merges = {0, 1, 0, 2, 0, 0};
  std::vector<float> expected(4 * kColumnsOfFold);
  FoldExpertsReference(
      {leaves.data(), begin.data(), rows.data(), merges.data(), 4, expected.data()});
  EXPECT_TRUE(expected[kColumnsOfFold] == 0 && std::signbit(expected[kColumnsOfFold]));
  for (Isa isa : AvailableIsas()) {
    testing::Fenced<float> y(expected.size());
    KernelsFor(isa).fold_experts(
        {leaves.data(), begin.data(), rows.data(), merges.data(), 4, y.data()});
    EXPECT_EQ(testing::FirstDifference(y.values(), expected), -1) << IsaName(isa);
    EXPECT_TRUE(y.intact());
  }
}

}  // namespace
}  // namespace lockstep
