#include "ops/operations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "ops/concat.h"
#include "ops/gathered_attention.h"
#include "ops/hadamard.h"
#include "ops/head_linear.h"
#include "ops/hyper_connections.h"
#include "ops/ngram.h"
#include "ops/pool_keys.h"
#include "ops/repeat.h"
#include "ops/root.h"
#include "ops/select_keys.h"

namespace lockstep {
namespace {

constexpr Axis T{'t', 5}, G{'g', 2}, R{'r', 3}, D{'d', 8}, K{'k', 64}, F{'f', 96}, V{'v', 40},
    S{'s', kPageTokens}, E{'e', 6}, U{'u', 2};

// One row for each operation: operands that fit, and what comes out.
struct OperationRow {
  OperationPtr op;
  std::vector<Shape> operands;
  std::vector<Shape> expected;
};

std::vector<OperationRow> Operations() {
  RopeOptions rope;
  rope.n_rot = 8;
  const Shape rows = {T, K}, state = {S, G, D};
  AttentionSettings sinks;
  sinks.sinks = true;
  const Axis taps{'d', 4}, past{'s', 3};
  const LinearAttentionSettings plain = {.dk = 8, .dv = 16}, tiled = {.dk = 8, .dv = 16, .tiled = true},
                                channels = {.dk = 8, .dv = 16, .channel_decay = true};
  const Axis DV{'d', 16};
  return {
      {MakeEmbed(1), {{T}, {V, K}}, {rows}},
      {MakeEmbedPart(1, 2), {{T}, {V, G, K}}, {rows}},
      {MakeLinear(0), {rows, {F, K}}, {{T, F}}},
      {MakeLinear(8), {{T, G, R, D}, {K, G, R, D}}, {rows}},
      {MakeQuantize(), {rows}, {rows}},
      {MakeSelectRows(), {rows}, {rows}},
      {MakeRmsNorm({}), {rows, {K}}, {rows}},
      {MakeRmsNorm({}), {{T, G, R, D}, {D}}, {{T, G, R, D}}},
      {MakeRmsNorm({.over = NormOver::kRow}), {{T, G, R, D}, {G, R, D}}, {{T, G, R, D}}},
      {MakeRmsNorm({.weighted = false, .size = 8}), {{T, G, R, D}}, {{T, G, R, D}}},
      {MakeRmsNorm({.over = NormOver::kRow, .weighted = false}), {{T, G, D}}, {{T, G, D}}},
      {MakeLayerNorm({.biased = true}), {rows, {K}, {K}}, {rows}},
      {MakeLayerNorm({}), {rows, {K}}, {rows}},
      {MakeLayerNorm({.over = NormOver::kRow, .biased = true}), {{T, G, D}, {G, D}, {G, D}}, {{T, G, D}}},
      {MakeRopeAngles(std::make_shared<const RopeTable>(rope)), {{T}}, {{T, D}}},
      {MakeRope(RopePairing::kHalves, 8, 8), {{T, G, R, D}, {T, D}}, {{T, G, R, D}}},
      {MakeHadamard(8), {{T, G, R, D}}, {{T, G, R, D}}},
      {MakeKvAppend(), {{T, G, D}, {T, G, D}, state, state}, {}},
      {MakeKvAppendKeys(), {{T, G, D}, state}, {}},
      {MakeHeadLinear(), {{T, G, R, D}, {R, {'d', 24, 1}, D}}, {{T, G, R, {'d', 24, 1}}}},
      {MakeGroupedLinear(), {{T, G, R, D}, {G, {'n', 5, 1}, {'k', 24, 1}}}, {{T, G, {'n', 5, 1}}}},
      {MakePoolKeys({4, 8, true}), {{T}, {S, {'g', 1, 1}, {'d', 32}}, {{'s', 4}, {'d', 16}}}, {{T, {'g', 1, 1}, {'d', 8, 8}}}},
      {MakePoolKeys({.pool = 4, .d = 8, .gated = false}), {{T}, {S, {'g', 1, 1}, D}}, {{T, {'g', 1, 1}, {'d', 8, 8}}}},
      {MakeHyperWeights({.streams = 2}), {{T, {'n', 8, 1}}, {{'n', 8}}, {{'n', 3}}}, {{T, {'n', 8, 1}}}},
      {MakeHyperCollapse({.streams = 2}), {{T, G, K}, {T, {'n', 8}}}, {rows}},
      {MakeHyperExpand({.streams = 2}), {{T, G, K}, {T, {'n', 8}}, rows}, {{T, G, K}}},
      {MakeRoot(), {rows}, {rows}},
      {MakeStreamMean(2), {{T, G, K}}, {rows}},
      {MakeRepeat(4, 8), {{T, D}}, {{T, {'g', 4, 1}, D}}},
      {MakeRepeat(4, 8), {{T, {'g', 1, 1}, D}}, {{T, {'g', 4, 1}, D}}},
      {MakeConcat(8, 4), {{T, G, D}, {T, G, {'d', 4}}}, {{T, G, {'d', 12, 12}}}},
      {MakeAttention({}), {{T, G, R, D}, state, state}, {{T, G, R, D}}},
      {MakeSelectKeys({.top_k = 4}), {{T, R, D}, {T, R}, {S, {'g', 1}, D}}, {{T, {'s', 4, 4}}}},
      {MakeSelectKeys({.top_k = 2, .pool = 4, .weighted = false}), {{T, R, D}, {S, {'g', 1}, D}}, {{T, {'s', 11, 11}}}},
      {MakeGatheredAttention({.positions_selected = true, .most_rows = 4}),
       {{T, G, R, D}, state, state, {T, {'s', 4}}},
       {{T, G, R, D}}},
      {MakeGatheredAttention({.attention = sinks, .with_entries = true, .entries_selected = true, .most_rows = 4}),
       {{T, G, R, D}, state, state, state, {T, {'s', 4}}, {G, R}},
       {{T, G, R, D}}},
      {MakeAttention(sinks), {{T, G, R, D}, state, state, {G, R}}, {{T, G, R, D}}},
      {MakeCausalConv({}), {rows, {K, taps}, {past, K}}, {rows}},
      {MakeCausalConv({.bias = true}), {rows, {K, taps}, {K}, {past, K}}, {rows}},
      {MakeLinearAttention(plain),
       {{T, G, D}, {T, G, D}, {T, G, R, DV}, {T, G, R}, {T, G, R}, {G, R, D, DV}},
       {{T, G, R, DV}}},
      {MakeLinearAttention(tiled),
       {{T, G, D}, {T, G, D}, {T, R, G, DV}, {T, R, G}, {T, R, G}, {R, G, D, DV}},
       {{T, R, G, DV}}},
      {MakeLinearAttention(channels),
       {{T, G, D}, {T, G, D}, {T, G, R, DV}, {T, G, R, D}, {T, G, R}, {G, R, D, DV}},
       {{T, G, R, DV}}},
      {MakeGroupedRmsNorm(1e-5f, 8), {{T, G, D}, {G, D}}, {{T, G, D}}},
      {MakeL2Norm(1e-6f, 8), {{T, G, D}}, {{T, G, D}}},
      {MakeMulColumns(), {{T, G, D}, {G, D}}, {{T, G, D}}},
      {MakeMulHeads(), {{T, G, R, D}, {G, R}}, {{T, G, R, D}}},
      {MakeMulEach(), {{T, G, R, D}, {T, G, R}}, {{T, G, R, D}}},
      {MakeMulEach(), {rows, {T}}, {rows}},
      {MakeDotGate(1), {{T, G, K}, {T, G, K}}, {{T, G}}},
      {MakePreviousTokens(3, 2), {{T}, {past}}, {{T, past}}},
      {MakeNgramEmbed({{3, 5}, {7, 7, 7}, {0, 7, 14}, 8}),
       {{T}, {T, {'s', 1}}, {V, D}},
       {{T, Axis{'r', 3}, D}}},
      {MakeAdd(), {rows, rows}, {rows}},
      {MakeAddBias(), {{T, G, D}, {G, D}}, {{T, G, D}}},
      {MakeMul(), {rows, rows}, {rows}},
      {MakeScale(2), {rows}, {rows}},
      {MakePositionScale(0.1f, 8), {rows}, {rows}},
      {MakeSoftCap(30), {rows}, {rows}},
      {MakeActivate(Activation::kSilu), {rows}, {rows}},
      {MakeActivateGated({}), {rows, rows}, {rows}},
      {MakeSoftmax(), {{T, E}}, {{T, E}}},
      {MakeTopExperts({.used = 2}, false), {{T, E}}, {{T, U}}},
      {MakeTopExperts({.used = 2}, true), {{T, E}, {E}}, {{T, U}}},
      {MakeExpertWeights({}, false), {{T, E}, {T, U}}, {{T, U}}},
      {MakeExpertWeights({}, true), {{T, E}, {T, U}, {E}}, {{T, U}}},
      {MakeMoeFfn({}), {rows, {T, U}, {T, U}, {E, F, K}, {E, F, K}, {E, K, F}}, {rows}},
      {MakeMoeFfn({.gated = false, .biases = true}),
       {rows, {T, U}, {T, U}, {E, F, K}, {E, K, F}, {E, F}, {E, K}},
       {rows}},
  };
}

TEST(Operations, HaveRulesThatFitTheirOperands) {
  for (const OperationRow& row : Operations()) {
    SCOPED_TRACE(row.op->name());
    const FactorRule rule(row.op->rule());
    EXPECT_EQ(rule.Infer("x", row.operands, row.op->own_axes()), row.expected);
    // An operand that is one too many or too few is no bug of ours but a refusal.
    std::vector<Shape> fewer(row.operands.begin(), row.operands.end() - 1), more = row.operands;
    more.push_back({K});
    EXPECT_THROW(rule.Infer("x", fewer, row.op->own_axes()), Error);
    EXPECT_THROW(rule.Infer("x", more, row.op->own_axes()), Error);
  }
}

TEST(Operations, WriteStatesOnlyWhereTheyHaveOne) {
  std::set<std::string_view> writers;
  for (const OperationRow& row : Operations()) {
    bool state = false;
    for (size_t i = 0; i < row.operands.size(); ++i)
      state |= row.op->operand(i) == OperandKind::kState;
    if (row.op->writes_state()) writers.insert(row.op->name());
    EXPECT_TRUE(state || !row.op->writes_state()) << row.op->name();
  }
  EXPECT_EQ(writers,
            (std::set<std::string_view>{"causal_conv", "kv_append", "linear_attention", "previous_tokens"}));
}

// Runs one step with every member of a team in turn.
struct StepRun {
  int members = 3;
  Split split = Split::kTokens;
  std::vector<Operand> in, out;
  std::vector<int32_t> tokens;
  std::vector<AttentionRow> places;
  std::vector<int32_t> index;
  FaultLog faults{16};

  void Rows(int64_t count) {
    tokens.assign(static_cast<size_t>(count), 0);
    places.resize(static_cast<size_t>(count));
    for (int64_t t = 0; t < count; ++t) {
      places[static_cast<size_t>(t)].position = t;
      index.push_back(static_cast<int32_t>(t));
    }
  }

  void Run(const Operation& op) {
    std::vector<std::byte> scratch(std::max<size_t>(op.scratch_bytes(in, std::ssize(places)), 1) + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    for (int member = 0; member < members; ++member) {
      op.Run({KernelsFor(BestIsa()),
              member,
              members,
              split,
              in,
              out,
              {tokens, places},
              index,
              {aligned, scratch.size() - 64},
              &faults,
              7});
    }
  }
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();

TEST(Operations, FindNumbersThatAreNotFiniteBeforeTheyAreCached) {
  const Format& f32 = *FindFormat("F32");
  const KvLayout layout{2, 8, 8, &f32, &f32};
  std::vector<float> page(static_cast<size_t>(layout.k_bytes() + layout.v_bytes()) / sizeof(float));
  const std::byte* pages[] = {reinterpret_cast<const std::byte*>(page.data())};
  for (float poison : {kNan, kInf, -kInf, 3e38f}) {
    for (size_t row : {0, 3, 4}) {
      for (bool in_value : {false, true}) {
        std::vector<float> k(5 * 16, 1), v(5 * 16, -3e38f);
        (in_value ? v : k)[row * 16 + 11] = poison;
        StepRun run;
        run.Rows(5);
        run.index = {2, 3, 5, 6, 9};
        for (AttentionRow& place : run.places) place.pages = pages;
        run.in = {Rows{k.data(), 16}, Rows{v.data(), 16}, StateView{&layout, 0, layout.k_bytes()},
                  StateView{&layout, 0, layout.k_bytes()}};
        run.Run(*MakeKvAppend());
        for (int32_t t = 0; t < 16; ++t) {
          const bool found = !std::isfinite(poison) && t == run.index[row];
          EXPECT_EQ(run.faults.step(t), found ? 7 : -1) << "row " << t << ", " << poison;
        }
      }
    }
  }
}

TEST(Operations, DealElementsInEitherWay) {
  for (Split split : {Split::kTokens, Split::kColumns}) {
    for (int members : {1, 2, 3, 7}) {
      std::vector<float> a(5 * 96), b(5 * 96), y(5 * 96, kNan);
      for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i), b[i] = 0.5f;
      StepRun run;
      run.members = members;
      run.split = split;
      run.Rows(5);
      run.in = {Rows{a.data(), 96}, Rows{b.data(), 96}};
      run.out = {Rows{y.data(), 96}};
      run.Run(*MakeAdd());
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(y[i], static_cast<float>(i) + 0.5f) << members << " members, " << i;
    }
  }
}

TEST(Operations, MultiplyEachRunByItsOwnNumber) {
  std::vector<float> x(3 * 8, 3), z = {1, 2, 4, 8, 16, 32}, y(3 * 8, kNan);
  StepRun run;
  run.Rows(3);
  run.in = {Rows{x.data(), 8}, Rows{z.data(), 2}};
  run.out = {Rows{y.data(), 8}};
  run.Run(*MakeMulEach());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], 3 * z[i / 4]) << i;
}

TEST(Operations, SelectRowsByTheirPlaceInTheBatch) {
  std::vector<float> x(8 * 4), y(3 * 4, kNan);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  StepRun run;
  run.Rows(3);
  run.index = {1, 2, 7};
  run.in = {Rows{x.data(), 4}};
  run.out = {Rows{y.data(), 4}};
  run.Run(*MakeSelectRows());
  EXPECT_EQ(y, (std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11, 28, 29, 30, 31}));
}

TEST(FaultLog, KeepsTheEarliestStepOfARow) {
  FaultLog faults(2);
  EXPECT_EQ(faults.step(0), -1);
  for (int32_t step : {5, 3, 9, 0, 4}) faults.Report(0, step);
  EXPECT_EQ(faults.step(0), 0);
  EXPECT_EQ(faults.step(1), -1);
  faults.Clear();
  EXPECT_EQ(faults.step(0), -1);
}

}  // namespace
}  // namespace lockstep
