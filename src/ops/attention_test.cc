#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ops/attention_tiles.h"
#include "ops/kernels.h"
#include "ops/testing/rows.h"

namespace lockstep {
namespace {

using testing::Fenced;
using testing::FirstDifference;
using testing::kInf;
using testing::kNan;

constexpr const char* kTypes[] = {"F32",  "F16",  "BF16", "Q8_0",  "Q4_0",
                                  "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"};

enum class PageOrder { kAscending, kShuffled };

struct Shape {
  std::string k_type = "F32", v_type = "F32";
  int64_t g = 1, r = 1, dk = 32, dv = 32;
  float scale = 0.125f, soft_cap = 0;
  int64_t window = 0;
  bool sinks = false;

  std::string Text() const {
    return fmt::format("{}/{} g {} r {} d {}/{} cap {} window {} sinks {}", k_type, v_type, g, r,
                       dk, dv, soft_cap, window, sinks);
  }
};

// Every bit of a page before anything is written: NaN in each type of plain numbers.
constexpr auto kStale = static_cast<std::byte>(0xFF);

// The pages of one sequence. K and V of this layer stand between other bytes; unused positions are
// NaN.
class Sequence {
 public:
  Sequence(const KvLayout& layout, int64_t positions, PageOrder order, uint32_t seed)
      : page_bytes_(kKOffset + layout.k_bytes() + kGap + layout.v_bytes() + kGap) {
    const int64_t count = (positions + kPageTokens - 1) / kPageTokens;
    bytes_.assign(static_cast<size_t>(count * page_bytes_), kStale);
    std::vector<int64_t> places(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) places[i] = i;
    if (order == PageOrder::kShuffled)
      std::shuffle(places.begin(), places.end(), std::mt19937(seed));
    for (int64_t place : places) pages_.push_back(bytes_.data() + place * page_bytes_);
  }
  Sequence(const Sequence&) = delete;

  static constexpr int64_t kKOffset = 64, kGap = 192;
  std::byte* page(int64_t i) { return const_cast<std::byte*>(pages_[i]); }
  // Pages before position `begin` are taken away, as those outside a window are.
  void DropBefore(int64_t begin) {
    for (int64_t i = 0; i < begin / kPageTokens; ++i) Drop(i);
  }
  void Drop(int64_t page) { pages_[page] = nullptr; }
  const std::byte* const* pages() const { return pages_.data(); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  int64_t page_bytes_;
  std::vector<std::byte> bytes_;
  std::vector<const std::byte*> pages_;
};

std::vector<std::byte> Scratch(size_t bytes) { return std::vector<std::byte>(bytes, kStale); }

// A task with all its data: rows of query at given places of some sequences.
class Case {
 public:
  explicit Case(const Shape& shape, uint32_t seed = 1) : shape(shape), random_(seed) {
    task.layout = {shape.g, shape.dk, shape.dv, FindFormat(shape.k_type), FindFormat(shape.v_type)};
    task.k_offset = Sequence::kKOffset;
    task.v_offset = Sequence::kKOffset + task.layout.k_bytes() + Sequence::kGap;
    task.heads_per_kv = shape.r;
    task.scale = shape.scale;
    task.soft_cap = shape.soft_cap;
    task.window = shape.window;
    if (shape.sinks) sinks_ = Normal(shape.g * shape.r, 2);
    task.sinks = shape.sinks ? sinks_.data() : nullptr;
    task.q_stride = shape.g * shape.r * shape.dk + 3;
    task.out_stride = shape.g * shape.r * shape.dv + 5;
  }

  // A sequence whose first `positions` positions hold K and V.
  Sequence& AddSequence(int64_t positions, PageOrder order = PageOrder::kShuffled, float size = 1) {
    sequences_.push_back(std::make_unique<Sequence>(task.layout, positions, order, random_()));
    Sequence& sequence = *sequences_.back();
    std::vector<AttentionRow> rows;
    for (int64_t p = 0; p < positions; ++p) rows.push_back({sequence.pages(), p});
    const KvLayout& layout = task.layout;
    keys = Normal(positions * layout.kv_heads * layout.dk, size);
    values = Normal(positions * layout.kv_heads * layout.dv, 1);
    KvAppendTask append{layout,
                        task.k_offset,
                        task.v_offset,
                        keys.data(),
                        layout.kv_heads * layout.dk,
                        values.data(),
                        layout.kv_heads * layout.dv,
                        rows.data(),
                        positions};
    std::vector<std::byte> scratch = Scratch(kKvAppendScratch);
    KvAppendReference(append, 0, positions, scratch.data());
    return sequence;
  }
  void AddRow(const Sequence& sequence, int64_t position, float size = 1) {
    rows_.push_back({sequence.pages(), position});
    const std::vector<float> row = Normal(task.q_stride, size);
    q_.insert(q_.end(), row.begin(), row.end());
    task.rows = rows_.data();
    task.q = q_.data();
    task.tokens = static_cast<int64_t>(rows_.size());
  }
  // The same with the query given.
  void AddRow(const Sequence& sequence, int64_t position, const std::vector<float>& query) {
    AddRow(sequence, position);
    std::copy(query.begin(), query.end(), q_.end() - task.q_stride);
    task.q = q_.data();
  }
  std::vector<float> Query(int64_t token) const {
    return {q_.begin() + token * task.q_stride, q_.begin() + (token + 1) * task.q_stride};
  }

  using Run = std::function<void(const AttentionTask&, std::byte* scratch)>;
  // Runs on fenced copies; gaps between rows of `out` must stay as they are.
  std::vector<float> Output(const Run& run) const {
    const int64_t width = shape.g * shape.r * shape.dv;
    Fenced<float> out(std::vector<float>(static_cast<size_t>(task.tokens * task.out_stride), 7.5f));
    Fenced<std::byte> scratch(Scratch(AttentionScratchBytes(task.layout, task.heads_per_kv)));
    AttentionTask copy = task;
    copy.out = out.data();
    run(copy, scratch.data());
    EXPECT_TRUE(out.intact()) << "out";
    EXPECT_TRUE(scratch.intact()) << "scratch";
    std::vector<float> found;
    for (int64_t t = 0; t < task.tokens; ++t) {
      const float* row = out.data() + t * task.out_stride;
      found.insert(found.end(), row, row + width);
      EXPECT_TRUE(
          std::all_of(row + width, row + task.out_stride, [](float x) { return x == 7.5f; }));
    }
    return found;
  }
  std::vector<float> Reference() const {
    return Output([](const AttentionTask& t, std::byte* scratch) {
      AttentionReference(t, 0, AttentionItems(t), scratch);
    });
  }
  std::vector<float> Kernel(Isa isa) const {
    return Output([isa](const AttentionTask& t, std::byte* scratch) {
      KernelsFor(isa).attention(t, 0, AttentionItems(t), scratch);
    });
  }
  // By pieces, in an order of its own.
  std::vector<float> InPieces(Isa isa) const {
    return Output([isa](const AttentionTask& t, std::byte* scratch) {
      const Kernels& kernels = KernelsFor(isa);
      Fenced<std::byte> partials(Scratch(AttentionPartialBytes(t)));
      const int64_t pieces = AttentionPieces(t), items = AttentionItems(t), middle = pieces / 3;
      for (int64_t piece = pieces; piece-- > middle;) {
        kernels.attention_spans(t, piece, piece + 1, partials.data(), scratch);
      }
      kernels.attention_spans(t, 0, middle, partials.data(), scratch);
      for (int64_t item = items; item-- > 0;) {
        kernels.attention_merge(t, item, item + 1, partials.data(), scratch);
      }
      EXPECT_TRUE(partials.intact()) << "partials";
    });
  }
  void ExpectKernelsEqualReference() const {
    SCOPED_TRACE(shape.Text());
    const std::vector<float> expected = Reference();
    for (Isa isa : AvailableIsas()) {
      SCOPED_TRACE(IsaName(isa));
      ASSERT_EQ(FirstDifference(expected, Kernel(isa)), -1);
      ASSERT_EQ(FirstDifference(expected, InPieces(isa)), -1);
    }
  }
  std::vector<float> Normal(int64_t n, float size) {
    return testing::RandomRow(n, size, random_());
  }

  Shape shape;
  AttentionTask task{};
  std::vector<float> keys, values;  // of the sequence added last, [s, g, d]

 private:
  std::mt19937 random_;
  std::vector<float> sinks_, q_;
  std::vector<AttentionRow> rows_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

// Rows around every edge of blocks and spans, two sequences in one batch.
void AddUsualRows(Case* c, int64_t positions) {
  const Sequence& first = c->AddSequence(positions);
  for (int64_t p : {0, 1, 63, 64, 65, 511, 512, 513, 1299}) {
    if (p < positions) c->AddRow(first, p);
  }
  const Sequence& second = c->AddSequence(70);
  for (int64_t p : {0, 64, 69}) c->AddRow(second, p);
}

TEST(Attention, KernelsEqualReferenceForEveryType) {
  for (const char* k_type : kTypes) {
    for (const char* v_type : kTypes) {
      Case c({.k_type = k_type, .v_type = v_type, .g = 2, .r = 3, .dk = 40, .dv = 24});
      const Sequence& sequence = c.AddSequence(150);
      for (int64_t p : {0, 64, 127, 149}) c.AddRow(sequence, p);
      c.ExpectKernelsEqualReference();
      EXPECT_TRUE(AllFinite(c.Reference())) << "NaN of unused positions leaked";
    }
  }
}

TEST(Attention, KernelsEqualReferenceForEveryHeadSize) {
  constexpr int64_t kSizes[][2] = {{1, 1},     {8, 8},     {40, 40},    {64, 64},   {72, 72},
                                   {80, 80},   {96, 96},   {128, 128},  {192, 128}, {17, 130},
                                   {256, 256}, {576, 512}, {1024, 1024}};
  for (const auto& [dk, dv] : kSizes) {
    for (const char* type : {"F32", "F16", "Q8_0"}) {
      Case c({.k_type = type, .v_type = type, .r = 2, .dk = dk, .dv = dv, .scale = 0.3f});
      const Sequence& sequence = c.AddSequence(100);
      for (int64_t p : {5, 63, 99}) c.AddRow(sequence, p);
      c.ExpectKernelsEqualReference();
    }
  }
}

TEST(Attention, KernelsEqualReferenceAroundBlocksAndSpans) {
  for (int64_t r : {1, 3, 7, 16}) {
    for (int64_t window : {0, 1, 64, 600}) {
      for (bool sinks : {false, true}) {
        const float cap = window == 64 ? 1.5f : 0;
        Case c({.k_type = "F16",
                .v_type = "BF16",
                .r = r,
                .dk = 8,
                .dv = 16,
                .scale = 0.5f,
                .soft_cap = cap,
                .window = window,
                .sinks = sinks});
        AddUsualRows(&c, 1300);
        c.ExpectKernelsEqualReference();
        EXPECT_TRUE(AllFinite(c.Reference()));
      }
    }
  }
}

TEST(Attention, KernelsEqualReferenceForEveryNumberOfQueryHeads) {
  for (int64_t r = 1; r <= 73; ++r) {
    Case c({.k_type = "F16", .v_type = "F16", .r = r, .dk = 16, .dv = 20, .scale = 0.5f});
    const Sequence& sequence = c.AddSequence(67);
    for (int64_t p : {65, 66}) c.AddRow(sequence, p);
    c.ExpectKernelsEqualReference();
  }
}

// A prompt in one batch: tiles whose rows see different parts of a block.
TEST(Attention, KernelsEqualReferenceForPrompts) {
  for (int64_t window : {0, 5, 20, 100}) {
    for (int64_t r : {1, 4}) {
      Case c({.k_type = "F16",
              .v_type = "Q4_1",
              .g = 2,
              .r = r,
              .dk = 16,
              .dv = 32,
              .window = window});
      const Sequence& sequence = c.AddSequence(150);
      for (int64_t p = 10; p < 150; ++p) c.AddRow(sequence, p);
      c.ExpectKernelsEqualReference();
    }
  }
}

TEST(Attention, ARowIsTheSameAloneInAnyBatchAndOnAnyPages) {
  const Shape shape{.k_type = "F16",
                    .v_type = "Q8_0",
                    .g = 2,
                    .r = 3,
                    .dk = 24,
                    .dv = 40,
                    .scale = 0.4f,
                    .soft_cap = 3,
                    .window = 300,
                    .sinks = true};
  Case whole(shape, 5);
  const Sequence& sequence = whole.AddSequence(700, PageOrder::kAscending);
  for (int64_t p = 560; p < 700; ++p) whole.AddRow(sequence, p);
  const int64_t width = shape.g * shape.r * shape.dv;
  for (Isa isa : AvailableIsas()) {
    const std::vector<float> expected = whole.Kernel(isa);
    for (int64_t batch : {1, 7, 33}) {
      SCOPED_TRACE(fmt::format("{}, batches of {}", IsaName(isa), batch));
      for (int64_t begin = 0; begin < 140; begin += batch * 5) {
        Case part(shape, 5);
        const Sequence& same = part.AddSequence(700, PageOrder::kShuffled);
        const int64_t end = std::min<int64_t>(140, begin + batch);
        for (int64_t t = begin; t < end; ++t) part.AddRow(same, 560 + t, whole.Query(t));
        const std::vector<float> rows(expected.begin() + begin * width,
                                      expected.begin() + end * width);
        ASSERT_EQ(FirstDifference(rows, part.Kernel(isa)), -1);
      }
    }
  }
}

TEST(Attention, ItemsMayBeDealtInAnyWay) {
  Case c({.k_type = "F16", .v_type = "F16", .g = 3, .r = 5, .dk = 16, .dv = 16});
  const Sequence& first = c.AddSequence(600);
  for (int64_t p = 550; p < 600; ++p) c.AddRow(first, p);
  const Sequence& second = c.AddSequence(90);
  for (int64_t p : {3, 80}) c.AddRow(second, p);
  const std::vector<float> expected = c.Reference();
  for (Isa isa : AvailableIsas()) {
    for (int64_t step : {1, 2, 5}) {
      const std::vector<float> found = c.Output([&](const AttentionTask& t, std::byte* scratch) {
        const int64_t items = AttentionItems(t);
        for (int64_t i = (items - 1) / step * step; i >= 0; i -= step) {
          KernelsFor(isa).attention(t, i, std::min(items, i + step), scratch);
        }
      });
      ASSERT_EQ(FirstDifference(expected, found), -1);
    }
  }
}

TEST(Attention, TilesCoverEveryRowOfEveryHeadOnce) {
  for (int64_t r : {1, 3, 16, 48, 49, 71}) {
    Case c({.g = 2, .r = r, .dk = 1, .dv = 1});
    const Sequence& first = c.AddSequence(700);
    const Sequence& second = c.AddSequence(40);
    for (int64_t p = 500; p < 600; ++p) c.AddRow(first, p);
    for (int64_t p : {3, 30}) c.AddRow(second, p);
    for (int64_t p : {650, 20}) c.AddRow(first, p);
    AttentionWalk walk(c.task);
    std::set<std::pair<int64_t, int64_t>> seen;
    int64_t piece = 0;
    for (int64_t item = 0; item < walk.items(); ++item, walk.Next()) {
      const AttentionTile tile = walk.tile();
      ASSERT_LE(tile.rows, kAttentionTileRows);
      ASSERT_LE(tile.rows, walk.most_rows());
      ASSERT_EQ(tile.first_piece, piece);
      for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
        ASSERT_TRUE(seen.insert({tile.kv_head, row}).second);
        ASSERT_EQ(c.task.rows[row / r].pages, c.task.rows[tile.first_row / r].pages);
      }
      for (; piece < tile.first_piece + tile.end_span - tile.first_span; ++piece) {
        AttentionWalk other(c.task);
        other.SeekPiece(piece);
        ASSERT_EQ(other.tile().first_row, tile.first_row);
        ASSERT_EQ(other.tile().kv_head, tile.kv_head);
        ASSERT_EQ(other.tile().first_piece, tile.first_piece);
      }
      AttentionWalk other(c.task);
      other.SeekItem(item);
      ASSERT_EQ(other.tile().first_row, tile.first_row);
      ASSERT_EQ(other.tile().first_piece, tile.first_piece);
    }
    EXPECT_EQ(piece, walk.pieces());
    EXPECT_EQ(seen.size(), static_cast<size_t>(2 * 104 * r));
  }
}

TEST(Attention, NothingToDoIsNoItems) {
  Case none({});
  EXPECT_EQ(AttentionItems(none.task), 0);
  EXPECT_EQ(AttentionPieces(none.task), 0);
  EXPECT_EQ(AttentionPartialBytes(none.task), 0u);
  Case no_heads({.g = 0});
  no_heads.AddRow(no_heads.AddSequence(3), 2);
  EXPECT_EQ(AttentionItems(no_heads.task), 0);
  for (Isa isa : AvailableIsas()) EXPECT_TRUE(no_heads.Kernel(isa).empty());
}

// Soft-max in double, straight from its definition. |o - exact| for f32 K and V follows from the
// terms of the sum:
//   a dot of dk products errs by dk u sum |q k|; the exponent so by that times the scale, and by
//   the roundings of scale, cap (its slope is at most 1, tanh and division err by 5 u) and the
//   subtraction from m; exp errs by 2 u more; the sums over at most `seen` positions in order, and
//   their corrections, by (seen + 6 blocks) u. A weight's relative error e counts twice: in o and
//   in l.
struct Exact {
  double value, bound;
};

std::vector<Exact> ExactRow(const Case& c, int64_t token, int64_t head) {
  constexpr double kU = 0x1p-24;
  const AttentionTask& task = c.task;
  const KvLayout& layout = task.layout;
  const int64_t g = head / task.heads_per_kv, position = task.rows[token].position;
  const float* q = task.q + token * task.q_stride + head * layout.dk;
  std::vector<double> scores, errors;
  std::vector<int64_t> seen;
  double top = -HUGE_VAL;
  for (int64_t p = 0; p <= position; ++p) {
    if (task.window != 0 && p + task.window <= position) continue;
    const float* k = c.keys.data() + (p * layout.kv_heads + g) * layout.dk;
    double dot = 0, size = 0;
    for (int64_t d = 0; d < layout.dk; ++d) {
      dot += static_cast<double>(q[d]) * k[d];
      size += std::fabs(static_cast<double>(q[d]) * k[d]);
    }
    double score = dot * task.scale;
    if (task.soft_cap != 0) score = task.soft_cap * std::tanh(score / task.soft_cap);
    seen.push_back(p);
    scores.push_back(score);
    errors.push_back((static_cast<double>(layout.dk) + 1) * kU * size * task.scale +
                     8 * kU * std::fabs(score));
    top = std::max(top, score);
  }
  if (task.sinks != nullptr) top = std::max(top, static_cast<double>(task.sinks[head]));
  const auto count = static_cast<double>(seen.size());
  const double steps = (count + 6 * (count / 64 + 2) + 8) * kU;
  double l = task.sinks == nullptr ? 0 : std::exp(task.sinks[head] - top);
  double worst = 0;
  std::vector<double> weights;
  for (size_t i = 0; i < seen.size(); ++i) {
    weights.push_back(std::exp(scores[i] - top));
    l += weights.back();
    worst = std::max(worst, errors[i]);
  }
  std::vector<Exact> row;
  for (int64_t d = 0; d < layout.dv; ++d) {
    double o = 0, size = 0;
    for (size_t i = 0; i < seen.size(); ++i) {
      const double v = c.values[(seen[i] * layout.kv_heads + g) * layout.dv + d];
      o += weights[i] * v;
      size += weights[i] * std::fabs(v);
    }
    // Twice the largest error of any score: its own and that of m, which cancels in exact
    // arithmetic only.
    const double relative = std::expm1(2 * worst) + 2 * kU * (std::fabs(top) + 20) + steps;
    row.push_back({o / l, 2 * relative * size / l + 1e-30});
  }
  return row;
}

TEST(Attention, IsCloseToSoftmaxInDouble) {
  for (float cap : {0.0f, 4.0f}) {
    for (int64_t window : {0, 8, 530}) {
      Case c({.g = 2,
              .r = 2,
              .dk = 64,
              .dv = 16,
              .soft_cap = cap,
              .window = window,
              .sinks = cap != 0});
      const Sequence& sequence = c.AddSequence(1300);
      for (int64_t p : {0, 7, 64, 600, 1299}) c.AddRow(sequence, p, 2);
      const std::vector<float> found = c.Kernel(BestIsa());
      size_t at = 0;
      for (int64_t t = 0; t < c.task.tokens; ++t) {
        for (int64_t head = 0; head < 4; ++head) {
          for (const Exact& exact : ExactRow(c, t, head)) {
            ASSERT_NEAR(found[at], exact.value, exact.bound) << c.shape.Text() << " token " << t;
            ASSERT_LT(exact.bound, 2e-3);
            ++at;
          }
        }
      }
    }
  }
}

// V is the position's own number and all scores are alike, so that l counts the positions seen and
// their numbers' sum names them: any position too many or too few shows. B092: windows over reused
// pages, batches across the window's edge.
TEST(Attention, SeesExactlyThePositionsOfItsWindowAndEnds) {
  std::mt19937 random(92);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(n));
  };
  int cases = 0;
  while (cases < 10000) {
    Case c({.dk = 1, .dv = 3, .scale = 0, .window = below(3) == 0 ? 0 : 1 + below(150)}, random());
    const int64_t positions = 1 + below(300);
    Sequence& sequence = c.AddSequence(positions);
    for (int64_t p = 0; p < positions; ++p) {
      const float value[3] = {static_cast<float>(p), static_cast<float>(p * p % 61),
                              p % 2 ? 1.0f : -1.0f};
      WriteValue(c.task.layout, value, sequence.page(p / 64) + c.task.v_offset, p % 64);
    }
    const int64_t tokens = 1 + below(std::min<int64_t>(positions, 20));
    const int64_t first = below(positions - tokens + 1);
    c.task.first = below(3) == 0 ? below(first + 1) : 0;
    // Something must be seen.
    if (c.task.first < first && c.task.window != 1)
      c.task.seen_end = static_cast<SeenEnd>(below(3));
    if (c.task.window != 0) sequence.DropBefore(std::max<int64_t>(0, first - c.task.window + 1));
    for (int64_t t = 0; t < tokens; ++t) c.AddRow(sequence, first + t);
    const std::vector<float> found = c.Kernel(AvailableIsas()[cases % AvailableIsas().size()]);
    for (int64_t t = 0; t < tokens; ++t, ++cases) {
      double sum[3] = {}, count = 0;
      for (int64_t p = 0; p < positions; ++p) {
        const int64_t own = first + t, end = c.task.seen_end == SeenEnd::kOwn      ? own + 1
                                             : c.task.seen_end == SeenEnd::kBefore ? own
                                                                                   : first + tokens;
        const int64_t window = c.task.window;
        if (p >= end || p < c.task.first || (window != 0 && p <= own - window)) continue;
        sum[0] += static_cast<double>(p);
        sum[1] += static_cast<double>(p * p % 61);
        sum[2] += p % 2 ? 1 : -1;
        ++count;
      }
      // All sums are integers below 2^24, so o and l are exact; the reciprocal and the product
      // round once each.
      for (int i = 0; i < 3; ++i) {
        ASSERT_NEAR(found[t * 3 + i], sum[i] / count, 0x1p-22 * std::fabs(sum[i]) / count);
      }
    }
  }
}

// Rows of one tile far apart: what lies between them is neither read nor needed.
TEST(Attention, PagesThatNoRowSeesMayBeMissing) {
  for (const char* type : {"F16", "Q8_0"}) {
    Case c({.k_type = type, .v_type = type, .r = 2, .dk = 16, .dv = 16, .window = 70});
    Sequence& sequence = c.AddSequence(2000);
    for (int64_t p : {1500, 100, 1999}) c.AddRow(sequence, p);
    const std::vector<float> expected = c.Reference();
    for (int64_t page : {2, 3, 15, 21, 24, 29}) sequence.Drop(page);
    ASSERT_EQ(FirstDifference(expected, c.Reference()), -1);
    c.ExpectKernelsEqualReference();
  }
}

TEST(Attention, HugeTinyAndEqualScoresStayExact) {
  for (float size : {1e30f, 1e15f, 1e-30f, 0.0f}) {
    for (bool sinks : {false, true}) {
      Case c({.k_type = "F32",
              .v_type = "F16",
              .r = 2,
              .dk = 8,
              .dv = 16,
              .scale = 1,
              .sinks = sinks});
      const Sequence& sequence = c.AddSequence(600);
      for (int64_t p : {0, 70, 599}) c.AddRow(sequence, p, size);
      c.ExpectKernelsEqualReference();
      EXPECT_TRUE(AllFinite(c.Reference())) << size;
    }
  }
}

TEST(Attention, OnePositionGivesItsValue) {
  for (const char* type : kTypes) {
    Case c({.k_type = type, .v_type = type, .r = 2, .dk = 32, .dv = 33, .window = 1});
    Sequence& sequence = c.AddSequence(131);
    for (int64_t p : {0, 63, 64, 130}) c.AddRow(sequence, p);
    const std::vector<float> found = c.Kernel(BestIsa());
    size_t at = 0;
    for (int64_t p : {0, 63, 64, 130}) {
      std::vector<float> value(33);
      ReadValue(c.task.layout, sequence.page(p / 64) + c.task.v_offset, p % 64, value.data());
      for (int head = 0; head < 2; ++head) {
        for (float v : value) ASSERT_EQ(found[at++], v) << type;
      }
    }
  }
}

TEST(Attention, ScoresFarBelowTheLargestCountNothing) {
  Case c({.dk = 1, .dv = 2, .scale = 1});
  Sequence& sequence = c.AddSequence(1100);
  for (int64_t p = 0; p < 1100; ++p) {
    const float key = p == 700 ? 0.0f : -1e30f;
    const float value[2] = {p == 700 ? 3.0f : 1e30f, static_cast<float>(p)};
    WriteKey(c.task.layout, &key, sequence.page(p / 64) + c.task.k_offset, p % 64);
    WriteValue(c.task.layout, value, sequence.page(p / 64) + c.task.v_offset, p % 64);
  }
  c.AddRow(sequence, 1099, std::vector<float>{1});
  c.ExpectKernelsEqualReference();
  const std::vector<float> found = c.Kernel(BestIsa());
  EXPECT_EQ(found[0], 3);
  EXPECT_EQ(found[1], 700);
}

// Nothing to normalise by: NaN, on every instruction set, and only there.
TEST(Attention, OnlyScoresOfMinusInfinityGiveNan) {
  Case c({.dk = 1, .dv = 2, .scale = 1});
  Sequence& sequence = c.AddSequence(600);
  for (int64_t p = 0; p < 580; ++p) {
    const float key = -kInf;
    WriteKey(c.task.layout, &key, sequence.page(p / 64) + c.task.k_offset, p % 64);
  }
  for (int64_t p : {0, 100, 579}) c.AddRow(sequence, p, std::vector<float>{1});
  c.ExpectKernelsEqualReference();
  for (float x : c.Reference()) EXPECT_TRUE(std::isnan(x));
}

TEST(Attention, AnInfiniteOrMissingSinkIsNone) {
  const Shape shape{.r = 2, .dk = 8, .dv = 8, .sinks = true};
  Case with(shape), without({.r = 2, .dk = 8, .dv = 8});
  const Sequence& a = with.AddSequence(90);
  with.AddRow(a, 80);
  const std::vector<float> sinks(2, -kInf);
  with.task.sinks = sinks.data();
  const std::vector<float> found = with.Kernel(BestIsa());
  with.task.sinks = nullptr;
  EXPECT_EQ(FirstDifference(found, with.Kernel(BestIsa())), -1);
}

// What is not finite in one row's reach reaches that row alone.
TEST(Attention, NanAndInfinityStayWithTheRowsThatSeeThem) {
  for (float odd : {kNan, kInf, -kInf}) {
    for (bool in_key : {true, false}) {
      Case clean({.k_type = "F32", .v_type = "F32", .g = 2, .r = 3, .dk = 16, .dv = 16}, 3);
      Case c(clean.shape, 3);
      Sequence &good = clean.AddSequence(200), &bad = c.AddSequence(200);
      std::vector<float> row(16, 1.0f);
      row[5] = odd;
      (in_key ? WriteKey : WriteValue)(c.task.layout, row.data(),
                                       bad.page(1) + (in_key ? c.task.k_offset : c.task.v_offset),
                                       40);
      for (int64_t p = 90; p < 120; ++p) {
        clean.AddRow(good, p);
        c.AddRow(bad, p);
      }
      c.ExpectKernelsEqualReference();
      const std::vector<float> expected = clean.Reference(), found = c.Reference();
      const size_t before = (64 + 40 - 90) * 2 * 3 * 16;
      EXPECT_TRUE(std::equal(found.begin(), found.begin() + before, expected.begin()));
      // Of head 0, which the number belongs to; its neighbour sees nothing of it.
      EXPECT_FALSE(AllFinite({found.begin() + before, found.end()}));
      const size_t next_head = before + 3 * 16;
      EXPECT_TRUE(std::equal(found.begin() + next_head, found.begin() + next_head + 3 * 16,
                             expected.begin() + next_head));
    }
  }
}

TEST(Attention, AnyBitsGiveTheReferencesBits) {
  for (const char* type : kTypes) {
    Case c({.k_type = type, .v_type = type, .r = 3, .dk = 33, .dv = 17});
    Sequence& sequence = c.AddSequence(140);
    std::mt19937 random(4);
    for (std::byte& b : sequence.bytes()) b = static_cast<std::byte>(random());
    for (int64_t p : {0, 1, 70, 139}) c.AddRow(sequence, p);
    c.ExpectKernelsEqualReference();
  }
}

TEST(KvLayout, SizesAreThoseOfItsRows) {
  const Format &f16 = *FindFormat("F16"), &q8_0 = *FindFormat("Q8_0");
  const KvLayout plain{3, 40, 72, &f16, &f16}, blocks{3, 40, 72, &q8_0, &q8_0};
  EXPECT_EQ(plain.k_head_bytes(), 64 * 40 * 2);
  EXPECT_EQ(plain.v_head_bytes(), 64 * 80 * 2);
  EXPECT_EQ(plain.v_bytes(), 3 * plain.v_head_bytes());
  EXPECT_EQ(blocks.k_head_bytes(), 64 * 2 * 34);
  EXPECT_EQ(blocks.v_head_bytes(), 64 * 3 * 34);
}

TEST(KvLayout, KnowsItsTypes) {
  std::set<std::string_view> found;
  for (const Format* format : AllFormats()) {
    if (IsKvType(*format)) found.insert(format->name);
  }
  EXPECT_EQ(found, (std::set<std::string_view>(std::begin(kTypes), std::end(kTypes))));
}

// Rows that a cache may be given: usual, and with what is hard to encode.
std::vector<float> AppendedRows(int64_t n, uint32_t seed) {
  std::vector<float> rows = testing::RandomRow(n, 1, seed);
  for (size_t i = 0; i < rows.size(); i += 97)
    rows[i] = std::ldexp(rows[i], static_cast<int>(i % 250) - 125);
  for (size_t i = 1; i < rows.size(); i += 301) rows[i] = i % 2 ? 65519.0f : -3.4e38f;
  return rows;
}

TEST(KvAppend, ReadsBackWhatTheFormatGivesAndTouchesNothingElse) {
  for (const char* type : kTypes) {
    for (int64_t d : {1, 32, 40, 130}) {
      SCOPED_TRACE(fmt::format("{} d {}", type, d));
      const Format& format = *FindFormat(type);
      const KvLayout layout{2, d, d + 3, &format, &format};
      const int64_t dv = d + 3, positions = 130, k_stride = 2 * d + 1, v_stride = 2 * dv + 7;
      const std::vector<float> k = AppendedRows(positions * k_stride, 1);
      const std::vector<float> v = AppendedRows(positions * v_stride, 2);
      const auto expect_row = [&](const float* in, int64_t n, const std::vector<float>& found) {
        std::vector<float> padded(static_cast<size_t>((n + 31) / 32 * 32));
        std::copy_n(in, n, padded.begin());
        std::vector<std::byte> bytes(padded.size() * 4);
        const auto blocks = static_cast<int64_t>(padded.size()) / format.block;
        format.encode(padded.data(), blocks, bytes.data());
        format.decode(bytes.data(), blocks, padded.data());
        padded.resize(static_cast<size_t>(n));
        ASSERT_EQ(FirstDifference(padded, found), -1);
      };
      std::vector<Isa> isas(AvailableIsas().begin(), AvailableIsas().end());
      std::vector<std::byte> expected;
      for (size_t i = 0; i <= isas.size(); ++i) {
        Sequence sequence(layout, positions, PageOrder::kShuffled, 3);
        std::fill(sequence.bytes().begin(), sequence.bytes().end(), std::byte{0});
        std::vector<AttentionRow> rows;
        for (int64_t p = 0; p < positions; ++p) rows.push_back({sequence.pages(), p});
        rows.erase(rows.begin() + 100);  // a place that is not written
        const int64_t k_offset = Sequence::kKOffset;
        const int64_t v_offset = k_offset + layout.k_bytes() + Sequence::kGap;
        const KvAppendTask task{layout,   k_offset,    v_offset,
                                k.data(), k_stride,    v.data(),
                                v_stride, rows.data(), static_cast<int64_t>(rows.size())};
        Fenced<std::byte> scratch(Scratch(kKvAppendScratch));
        KvAppendFn* append = i == 0 ? KvAppendReference : KernelsFor(isas[i - 1]).kv_append;
        append(task, 50, task.tokens, scratch.data());
        append(task, 0, 50, scratch.data());
        ASSERT_TRUE(scratch.intact());
        if (i > 0) {
          ASSERT_EQ(expected, sequence.bytes()) << IsaName(isas[i - 1]);
          continue;
        }
        expected = sequence.bytes();
        for (size_t t = 0; t < rows.size(); ++t) {
          const int64_t page = rows[t].position / 64, at = rows[t].position % 64;
          for (int64_t g = 0; g < 2; ++g) {
            std::vector<float> key(static_cast<size_t>(d)), value(static_cast<size_t>(dv));
            ReadKey(layout, sequence.page(page) + k_offset + g * layout.k_head_bytes(), at,
                    key.data());
            ReadValue(layout, sequence.page(page) + v_offset + g * layout.v_head_bytes(), at,
                      value.data());
            expect_row(k.data() + static_cast<int64_t>(t) * k_stride + g * d, d, key);
            expect_row(v.data() + static_cast<int64_t>(t) * v_stride + g * dv, dv, value);
          }
        }
        std::vector<float> unwritten(static_cast<size_t>(dv), 1.0f);
        ReadValue(layout, sequence.page(1) + v_offset, 100 - 64, unwritten.data());
        if (format.block == 1) {
          EXPECT_EQ(unwritten, std::vector<float>(unwritten.size()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
