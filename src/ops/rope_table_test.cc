#include "ops/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr long double kPi = M_PIl;

RopeOptions Options(RopeScaling scaling, int64_t n_rot, double base = 10000) {
  RopeOptions o;
  o.scaling = scaling;
  o.n_rot = n_rot;
  o.base = base;
  return o;
}

long double Plain(const RopeOptions& o, int64_t j) {
  return std::pow(static_cast<long double>(o.base), -2.0L * j / o.n_rot);
}

void ExpectFrequencies(const RopeOptions& o, const std::function<long double(int64_t)>& exact) {
  RopeTable table(o);
  ASSERT_EQ(table.pairs(), o.n_rot / 2);
  for (int64_t j = 0; j < table.pairs(); ++j) {
    long double expected = exact(j);
    EXPECT_NEAR(table.frequencies()[static_cast<size_t>(j)], static_cast<double>(expected),
                static_cast<double>(expected) * 4e-15)
        << j;
  }
}

TEST(RopeTable, PlainFrequenciesArePowersOfTheBase) {
  for (int64_t n_rot : {2, 20, 64, 128, 256}) {
    for (double base : {10000.0, 500000.0, 1e6, 5e6}) {
      RopeOptions o = Options(RopeScaling::kNone, n_rot, base);
      ExpectFrequencies(o, [&](int64_t j) { return Plain(o, j); });
      o.scaling = RopeScaling::kLinear;
      o.factor = 8;
      ExpectFrequencies(o, [&](int64_t j) { return Plain(o, j) / 8; });
    }
  }
}

TEST(RopeTable, FrequencyFactorsDivide) {
  RopeOptions o = Options(RopeScaling::kNone, 8);
  o.freq_factors = {1, 2, 4.5f, 1e30f};
  ExpectFrequencies(
      o, [&](int64_t j) { return Plain(o, j) / o.freq_factors[static_cast<size_t>(j)]; });
}

// Llama 3.1: long waves are stretched by the whole factor, short ones left, those between mixed.
TEST(RopeTable, Llama3StretchesLowFrequenciesOnly) {
  RopeOptions o = Options(RopeScaling::kLlama3, 64, 500000);
  o.factor = 8;
  o.original_context = 8192;
  ExpectFrequencies(o, [&](int64_t j) -> long double {
    long double f = Plain(o, j), wave = 2 * kPi / f;
    if (wave > 8192.0L / 1) return f / 8;
    if (wave < 8192.0L / 4) return f;
    long double smooth = (8192.0L / wave - 1) / (4 - 1);
    return (1 - smooth) * f / 8 + smooth * f;
  });
  RopeTable table(o);
  EXPECT_EQ(table.frequencies()[0], 1);
  EXPECT_LT(table.frequencies()[31], static_cast<double>(Plain(o, 31)) / 7.99);
}

// Values from the formulas of the YaRN paper, worked out apart from this code: head 64, base 10000, 32 positions
// stretched 8 times, betas 32 and 1. The ramp's ends are at pairs max(0, -6.4) and 5.66, rounded to 6 when truncated.
TEST(RopeTable, YarnBlendsBetweenItsTwoEnds) {
  RopeOptions o = Options(RopeScaling::kYarn, 64);
  o.factor = 8;
  o.original_context = 32;
  long double high = 64 * std::log(32 / (2 * kPi)) / (2 * std::log(10000.0L));
  for (bool truncate : {true, false}) {
    o.truncate = truncate;
    long double end = truncate ? std::ceil(high) : high;
    ExpectFrequencies(o, [&](int64_t j) {
      long double ramp = std::min(1.0L, j / end);
      return Plain(o, j) / 8 * ramp + Plain(o, j) * (1 - ramp);
    });
  }
}

TEST(RopeTable, YarnDerivesItsAttentionFactor) {
  RopeOptions o = Options(RopeScaling::kYarn, 64);
  o.original_context = 4096;
  o.factor = 40;
  double ln = std::log(40.0);
  EXPECT_NEAR(RopeTable(o).attention_factor(), 0.1 * ln + 1, 1e-15);
  o.mscale = 1;
  EXPECT_NEAR(RopeTable(o).attention_factor(), 0.1 * ln + 1, 1e-15);
  o.mscale_all_dim = 0.707;
  EXPECT_NEAR(RopeTable(o).attention_factor(), (0.1 * ln + 1) / (0.0707 * ln + 1), 1e-15);
  o.attention_factor = 1.25;
  EXPECT_EQ(RopeTable(o).attention_factor(), 1.25);
  o.attention_factor.reset();
  o.factor = 0.5;
  EXPECT_EQ(RopeTable(o).attention_factor(), 1);
}

TEST(RopeTable, LongRopeChoosesByTheRunsContext) {
  RopeOptions o = Options(RopeScaling::kLongRope, 6);
  o.short_factors = {1, 1.25f, 1.5f};
  o.long_factors = {2, 30, 64};
  o.original_context = 4096;
  o.factor = 32;
  for (int64_t context : {0, 4096, 4097, 131072}) {
    o.context = context;
    const std::vector<float>& factors = context > 4096 ? o.long_factors : o.short_factors;
    ExpectFrequencies(o, [&](int64_t j) { return Plain(o, j) / factors[static_cast<size_t>(j)]; });
    EXPECT_NEAR(RopeTable(o).attention_factor(), std::sqrt(1 + std::log(32.0) / std::log(4096.0)),
                1e-15);
  }
}

TEST(RopeTable, ProportionalKeepsPlacesOfTheWholeHead) {
  RopeOptions o = Options(RopeScaling::kProportional, 24, 1e6);
  o.rotated_share = 0.25;
  ExpectFrequencies(o, [&](int64_t j) { return j < 3 ? Plain(o, j) : 0; });
  o.rotated_share = 0.3;  // 3.6 pairs
  ExpectFrequencies(o, [&](int64_t j) { return j < 3 ? Plain(o, j) : 0; });
  o.rotated_share = 1;
  ExpectFrequencies(o, [&](int64_t j) { return Plain(o, j); });
}

TEST(RopeTable, FillsCosinesAndSinesOfEveryPosition) {
  RopeOptions o = Options(RopeScaling::kNone, 128, 1e6);
  o.attention_factor = 1.5;
  RopeTable table(o);
  std::vector<float> cos(64), sin(64);
  for (int64_t position :
       {int64_t{0}, int64_t{1}, int64_t{4095}, int64_t{1000003}, int64_t{0xFFFFFF}}) {
    table.Fill(position, cos.data(), sin.data());
    for (size_t j = 0; j < 64; ++j) {
      long double angle = static_cast<long double>(position) * table.frequencies()[j];
      // Half an ulp of f32, and the angle's own rounding in double.
      long double bound = 1.5L * 0x1p-24L * 1.01L + angle * 0x1p-52L;
      ASSERT_LE(std::fabs(cos[j] - 1.5L * std::cos(angle)), bound) << position << ' ' << j;
      ASSERT_LE(std::fabs(sin[j] - 1.5L * std::sin(angle)), bound) << position << ' ' << j;
    }
  }
}

struct Refusal {
  const char* text;  // what the message must hold
  std::function<void(RopeOptions&)> spoil;
};

TEST(RopeTable, RefusesWhatHasNoMeaning) {
  using enum RopeScaling;
  const Refusal rows[] = {
      {"even number", [](RopeOptions& o) { o.n_rot = 0; }},
      {"even number", [](RopeOptions& o) { o.n_rot = 63; }},
      {"even number", [](RopeOptions& o) { o.n_rot = -64; }},
      {"even number", [](RopeOptions& o) { o.n_rot = int64_t{1} << 40; }},
      {"base", [](RopeOptions& o) { o.base = 0; }},
      {"base", [](RopeOptions& o) { o.base = 1; }},
      {"base", [](RopeOptions& o) { o.base = -10000; }},
      {"base", [](RopeOptions& o) { o.base = kNan; }},
      {"base", [](RopeOptions& o) { o.base = kInf; }},
      {"factor", [](RopeOptions& o) { o.scaling = kLinear, o.factor = 0; }},
      {"factor", [](RopeOptions& o) { o.scaling = kLinear, o.factor = kNan; }},
      {"frequency", [](RopeOptions& o) { o.scaling = kLinear, o.factor = 1e-300; }},
      {"attention factor", [](RopeOptions& o) { o.attention_factor = kNan; }},
      {"frequency factors",
       [](RopeOptions& o) {
         o.freq_factors = {1, 2};
       }},
      {"frequency factors",
       [](RopeOptions& o) {
         o.freq_factors = {1, 2, 0, 1};
       }},
      {"frequency factors",
       [](RopeOptions& o) {
         o.freq_factors = {1, 2, NAN, 1};
       }},
      {"original context", [](RopeOptions& o) { o.scaling = kYarn; }},
      {"original context", [](RopeOptions& o) { o.scaling = kLlama3, o.original_context = -1; }},
      {"beta fast",
       [](RopeOptions& o) { o.scaling = kYarn, o.original_context = 64, o.beta_fast = 0; }},
      {"beta slow",
       [](RopeOptions& o) { o.scaling = kYarn, o.original_context = 64, o.beta_slow = 33; }},
      {"low frequency",
       [](RopeOptions& o) { o.scaling = kLlama3, o.original_context = 64, o.low_freq_factor = 4; }},
      {"short factors", [](RopeOptions& o) { o.scaling = kLongRope, o.original_context = 64; }},
      {"long factors",
       [](RopeOptions& o) {
         o.scaling = kLongRope, o.original_context = 64, o.short_factors = {1, 1, 1, 1};
         o.long_factors = {1, 1, 1, -1};
       }},
      {"rotated share", [](RopeOptions& o) { o.scaling = kProportional, o.rotated_share = 1.5; }},
  };
  for (const Refusal& row : rows) {
    RopeOptions o = Options(kNone, 8);
    row.spoil(o);
    try {
      RopeTable table(o);
      ADD_FAILURE() << row.text;
    } catch (const Error& error) {
      std::string text = error.what();
      EXPECT_EQ(text.rfind("rope: ", 0), 0u) << text;
      EXPECT_NE(text.find(row.text), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace lockstep
