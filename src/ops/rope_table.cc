#include "ops/rope_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "simd/scalar_math.h"

namespace lockstep {

namespace {

constexpr double kPi = 0x1.921fb54442d18p+1;
constexpr double kMost = std::numeric_limits<double>::max();
constexpr double kLeast = std::numeric_limits<double>::min();

void ExpectIn(std::string_view name, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    throw Refused("rope: {}: expected a number from {:g} to {:g}, found {:g}", name, low, high,
                  value);
  }
}

void ExpectFactors(std::string_view name, std::span<const float> factors, int64_t pairs) {
  if (std::ssize(factors) != pairs) {
    throw Refused("rope: {}: expected {} values, found {}", name, pairs, factors.size());
  }
  for (float factor : factors) {
    ExpectIn(name, factor, std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
  }
}

void Check(const RopeOptions& o) {
  if (o.n_rot < 2 || o.n_rot > 65536 || o.n_rot % 2 != 0) {
    throw Refused("rope: rotated elements: expected an even number from 2 to 65536, found {}",
                  o.n_rot);
  }
  ExpectIn("base", o.base, 1.0000001, kMost);
  ExpectIn("factor", o.factor, kLeast, kMost);
  if (o.attention_factor) ExpectIn("attention factor", *o.attention_factor, kLeast, 1e30);
  if (!o.freq_factors.empty()) ExpectFactors("frequency factors", o.freq_factors, o.n_rot / 2);

  bool stretched = o.scaling == RopeScaling::kYarn || o.scaling == RopeScaling::kLlama3 ||
                   o.scaling == RopeScaling::kLongRope;
  if (stretched) ExpectIn("original context", static_cast<double>(o.original_context), 2, 0x1p53);
  switch (o.scaling) {
    case RopeScaling::kYarn:
      ExpectIn("beta fast", o.beta_fast, kLeast, kMost);
      ExpectIn("beta slow", o.beta_slow, kLeast, o.beta_fast);
      ExpectIn("mscale", o.mscale, 0, 1e6);
      ExpectIn("mscale of all dimensions", o.mscale_all_dim, 0, 1e6);
      break;
    case RopeScaling::kLlama3:
      ExpectIn("high frequency factor", o.high_freq_factor, kLeast, 1e9);
      ExpectIn("low frequency factor", o.low_freq_factor, kLeast, o.high_freq_factor * 0.999999);
      break;
    case RopeScaling::kLongRope:
      ExpectFactors("short factors", o.short_factors, o.n_rot / 2);
      ExpectFactors("long factors", o.long_factors, o.n_rot / 2);
      break;
    case RopeScaling::kProportional:
      ExpectIn("rotated share", o.rotated_share, kLeast, 1);
      break;
    case RopeScaling::kNone:
    case RopeScaling::kLinear:
      break;
  }
}

// The pair that turns `turns` times within the original context.
double PairOfTurns(const RopeOptions& o, double turns) {
  double context = static_cast<double>(o.original_context);
  return static_cast<double>(o.n_rot) * f64::Log(context / (turns * 2 * kPi)) /
         (2 * f64::Log(o.base));
}

// YaRN's ramp: 0 for pairs that keep their frequency, 1 for those divided by the factor.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeOptions& o)
      : low_(PairOfTurns(o, o.beta_fast)), high_(PairOfTurns(o, o.beta_slow)) {
    if (o.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, static_cast<double>(o.n_rot - 1));
    if (low_ == high_) high_ += 0.001;
  }
  double operator()(int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - low_) / (high_ - low_), 0.0, 1.0);
  }

 private:
  double low_, high_;
};

double Llama3(const RopeOptions& o, double frequency) {
  double turns = static_cast<double>(o.original_context) * frequency / (2 * kPi);
  if (turns < o.low_freq_factor) return frequency / o.factor;
  if (turns > o.high_freq_factor) return frequency;
  double smooth = (turns - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
  return (1 - smooth) * frequency / o.factor + smooth * frequency;
}

double Scaled(const RopeOptions& o, int64_t pair, double frequency) {
  switch (o.scaling) {
    case RopeScaling::kNone:
      return frequency;
    case RopeScaling::kLinear:
      return frequency / o.factor;
    case RopeScaling::kYarn: {
      double ramp = YarnRamp(o)(pair);
      return frequency / o.factor * ramp + frequency * (1 - ramp);
    }
    case RopeScaling::kLlama3:
      return Llama3(o, frequency);
    case RopeScaling::kLongRope: {
      bool is_long = o.context > o.original_context;
      const std::vector<float>& factors = is_long ? o.long_factors : o.short_factors;
      return frequency / factors[static_cast<size_t>(pair)];
    }
    case RopeScaling::kProportional: {
      double rotated = std::floor(o.rotated_share * static_cast<double>(o.n_rot) / 2);
      return static_cast<double>(pair) < rotated ? frequency / o.factor : 0;
    }
  }
  return frequency;
}

double AttentionFactor(const RopeOptions& o) {
  if (o.attention_factor) return *o.attention_factor;
  if (o.factor <= 1) return 1;
  auto m = [&](double mscale) { return 0.1 * mscale * f64::Log(o.factor) + 1; };
  switch (o.scaling) {
    case RopeScaling::kYarn:
      return o.mscale > 0 && o.mscale_all_dim > 0 ? m(o.mscale) / m(o.mscale_all_dim) : m(1);
    case RopeScaling::kLongRope:
      return std::sqrt(1 + f64::Log(o.factor) / f64::Log(static_cast<double>(o.original_context)));
    default:
      return 1;
  }
}

}  // namespace

RopeTable::RopeTable(const RopeOptions& options) {
  Check(options);
  attention_factor_ = AttentionFactor(options);
  int64_t pairs = options.n_rot / 2;
  frequencies_.reserve(static_cast<size_t>(pairs));
  for (int64_t j = 0; j < pairs; ++j) {
    double exponent = static_cast<double>(-2 * j) / static_cast<double>(options.n_rot);
    double frequency = f64::Pow(options.base, exponent);
    if (!options.freq_factors.empty()) frequency /= options.freq_factors[static_cast<size_t>(j)];
    frequency = Scaled(options, j, frequency);
    ExpectIn("frequency", frequency, 0, 64);
    frequencies_.push_back(frequency);
  }
}

void RopeTable::Fill(int64_t position, float* cos, float* sin) const {
  for (size_t j = 0; j < frequencies_.size(); ++j) {
    double angle = static_cast<double>(position) * frequencies_[j];
    cos[j] = static_cast<float>(f64::Cos(angle) * attention_factor_);
    sin[j] = static_cast<float>(f64::Sin(angle) * attention_factor_);
  }
}

}  // namespace lockstep
