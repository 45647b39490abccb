// Cosines and sines of positions: base frequencies, every scaling of them, and the factor on both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// How frequencies are changed for contexts longer than those of training. With f = base^(-2j / n_rot) / freq_factor:
enum class RopeScaling {
  kNone,    // f
  kLinear,  // f / factor
  // Peng et al. 2023. A ramp over the pairs from f, where a pair turns beta_fast times within original_context, to
  // f / factor, where it turns beta_slow times. `truncate` rounds the ramp's ends outwards to whole pairs.
  kYarn,
  // Llama 3.1: f / factor where the wavelength exceeds original_context / low_freq_factor, f where it is below
  // original_context / high_freq_factor, and their mix between.
  kLlama3,
  // Ding et al. 2024: f / long_factors[j] where `context` exceeds original_context, else f / short_factors[j]. One
  // choice for a whole run: frequencies that changed with the length so far would change earlier positions.
  kLongRope,
  // f / factor for the first rotated_share of the pairs, 0 for the rest: they keep their place in the whole head.
  kProportional,
};

struct RopeOptions {
  double base = 10000;  // above 1
  int64_t n_rot = 0;    // rotated elements of a head, even; 2 .. 65536
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  int64_t original_context = 0;  // positions; kYarn, kLlama3, kLongRope
  int64_t context = 0;           // positions that the run may reach; kLongRope
  double beta_fast = 32;         // kYarn
  double beta_slow = 1;
  bool truncate = true;
  double mscale =
      0;  // kYarn without attention_factor: with both m(mscale) / m(mscale_all_dim), else m(1),
  double mscale_all_dim = 0;   // where m(s) = 0.1 s ln(factor) + 1, and 1 for factor <= 1
  double low_freq_factor = 1;  // kLlama3
  double high_freq_factor = 4;
  double rotated_share = 1;  // kProportional, in (0, 1]
  // On cosines and sines. Derived where absent: kYarn as above; kLongRope sqrt(1 + ln factor / ln original_context),
  // and 1 for factor <= 1; otherwise 1.
  std::optional<double> attention_factor;
  std::vector<float> short_factors;  // [n_rot / 2], kLongRope
  std::vector<float> long_factors;   // [n_rot / 2], kLongRope
  std::vector<float> freq_factors;   // [n_rot / 2] or empty: 1
};

// Computed in double without libm, so equal on every machine; agrees with the definitions to about 1e-15.
class RopeTable {
 public:
  // Throws Refused ("rope: base: expected ..., found ...") for options outside the domains above, arrays of the wrong
  // length and frequencies that are not finite or above 64 radians a position.
  explicit RopeTable(const RopeOptions& options);

  int64_t pairs() const { return static_cast<int64_t>(frequencies_.size()); }
  std::span<const double> frequencies() const {
    return frequencies_;
  }  // [pairs], radians a position
  double attention_factor() const { return attention_factor_; }

  // cos, sin: [pairs], attention_factor times the cosine and sine of position * frequency. 0 <= position < 2^24.
  void Fill(int64_t position, float* cos, float* sin) const;

 private:
  std::vector<double> frequencies_;
  double attention_factor_ = 1;
};

}  // namespace lockstep
