// Fitting of formats with a minimum: x ~ scale * code + min, codes 0 .. kMost.
#pragma once

#include "formats/fit.h"

namespace lockstep {

struct AffineFit {
  float scale = 0;
  float min = 0;
};

// Whether the minimum may be above zero. Formats that store it as something to be subtracted
// cannot.
enum class MinSign { kAny, kNotAbove };

// The scale and minimum of least squares for given codes. x, w, codes: [n]
template <int n, MinSign kSign>
inline AffineFit BestAffine(const float* x, const float* w, const int8_t* codes) {
  const auto code = [&](int i) { return static_cast<float>(codes[i]); };
  const float sum_w = LaneSum<n>([&](int i) { return w[i]; });
  const float sum_x = LaneSum<n>([&](int i) { return w[i] * x[i]; });
  const float sum_q = LaneSum<n>([&](int i) { return w[i] * code(i); });
  const float sum_qq = LaneSum<n>([&](int i) { return w[i] * code(i) * code(i); });
  const float sum_xq = LaneSum<n>([&](int i) { return w[i] * x[i] * code(i); });
  const float determinant = sum_w * sum_qq - sum_q * sum_q;
  AffineFit fit;
  if (determinant > 0) {
    fit.scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
    fit.min = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
  }
  if (kSign == MinSign::kNotAbove && fit.min > 0) {
    fit.min = 0;
    fit.scale = sum_qq > 0 ? sum_xq / sum_qq : 0;
  }
  return fit;
}

// Rounds to the codes of a scale and minimum; returns the error.
template <int n, int kMost>
inline float AffineCodes(const float* x, const float* w, AffineFit fit, int8_t* codes) {
  RoundCodes(x, n, fit.min, Inverse(fit.scale), 0, kMost, codes);
  return LaneSum<n>([&](int i) {
    const float off = x[i] - (fit.scale * static_cast<float>(codes[i]) + fit.min);
    return w[i] * (off * off);
  });
}

// The best scale and minimum of one group by itself: ranges a little inside and outside that of the
// weights are tried, and the best goes back and forth between codes and least squares.
template <int n, int kMost, MinSign kSign>
inline AffineFit SearchAffine(const float* x, const float* w) {
  Bounds bounds = MinMax(x, n);
  if (kSign == MinSign::kNotAbove) bounds.min = std::min(bounds.min, 0.0f);
  const float extent = bounds.max - bounds.min;
  AffineFit best{0, bounds.min};
  if (!(extent > 0)) return best;
  int8_t codes[n];
  float least = AffineCodes<n, kMost>(x, w, best, codes);
  const auto attempt = [&](AffineFit start) {
    AffineCodes<n, kMost>(x, w, start, codes);
    const AffineFit fit = BestAffine<n, kSign>(x, w, codes);
    const float error = AffineCodes<n, kMost>(x, w, fit, codes);
    if (!(error < least) || !(fit.scale > 0)) return false;
    least = error;
    best = fit;
    return true;
  };
  // Steps of a tenth of a code at both ends together, then with the lower end moved by itself.
  for (int k = -8; k <= 12; ++k) {
    const float codes_in_extent = static_cast<float>(kMost) + 0.1f * static_cast<float>(k);
    if (codes_in_extent > 0.5f) attempt({extent / codes_in_extent, bounds.min});
  }
  for (int k = 1; k <= 6; ++k) {
    const float inset = extent * 0.04f * static_cast<float>(k);
    attempt({(extent - inset) / static_cast<float>(kMost), bounds.min + inset});
    attempt({(extent - 2 * inset) / static_cast<float>(kMost), bounds.min + inset});
  }
  for (int k = 0; k < 4 && attempt(best); ++k) {
  }
  return best;
}

// ---- One f16 scale and minimum: Q4_1, Q5_1 ----

template <int n, int kMost>
struct AffineBlock {
  uint16_t d, m;
  int8_t codes[n];
};

template <int n, int kMost>
inline AffineBlock<n, kMost> FitAffineBlock(const FitInput& in) {
  const AffineFit fit = SearchAffine<n, kMost, MinSign::kAny>(in.x, in.w);
  AffineBlock<n, kMost> block;
  block.d = in.F16(fit.scale);
  block.m = in.F16(fit.min);
  AffineCodes<n, kMost>(in.x, in.w, {in.Value(block.d), in.Value(block.m)}, block.codes);
  return block;
}

// ---- Coded scales and minimums, each times a shared f16: Q2_K, Q4_K, Q5_K ----

template <typename Codec>
struct AffineLevelFit {
  static constexpr int kGroups = Codec::kBlock / Codec::kGroup;
  uint16_t d = 0, dmin = 0;
  int8_t scales[kGroups] = {},
         mins[kGroups] = {};  // levels 0 .. Codec::kLevels; minimums are subtracted
  int8_t codes[Codec::kBlock] = {};
  float error = FLT_MAX;
};

// Codec: kBlock, kGroup, kMost (codes), kLevels. Chooses levels and codes of every group for given
// shared scales.
template <typename Codec>
inline AffineLevelFit<Codec> FitAffineLevels(const FitInput& in, uint16_t d, uint16_t dmin,
                                             const AffineFit* wanted) {
  constexpr int n = Codec::kGroup;
  AffineLevelFit<Codec> fit;
  fit.d = d;
  fit.dmin = dmin;
  fit.error = 0;
  const float scale = in.Value(d), min = in.Value(dmin);
  const float inverse_scale = Inverse(scale), inverse_min = Inverse(min);
  for (int g = 0; g < fit.kGroups; ++g) {
    const int s0 = RoundWithin(wanted[g].scale * inverse_scale, 0, Codec::kLevels);
    const int m0 = RoundWithin(-wanted[g].min * inverse_min, 0, Codec::kLevels);
    float least = FLT_MAX;
    for (int s = std::max(s0 - 1, 0); s <= std::min(s0 + 1, Codec::kLevels); ++s) {
      for (int m = std::max(m0 - 1, 0); m <= std::min(m0 + 1, Codec::kLevels); ++m) {
        int8_t codes[n];
        const AffineFit decoded{scale * static_cast<float>(s), -(min * static_cast<float>(m))};
        const float error =
            AffineCodes<n, Codec::kMost>(in.x + g * n, in.w + g * n, decoded, codes);
        if (!(error < least)) continue;
        least = error;
        fit.scales[g] = static_cast<int8_t>(s);
        fit.mins[g] = static_cast<int8_t>(m);
        std::copy_n(codes, n, fit.codes + g * n);
      }
    }
    fit.error += least;
  }
  return fit;
}

// The shared scales of least squares for given levels and codes.
template <typename Codec>
inline AffineFit BestAffineShared(const FitInput& in, const AffineLevelFit<Codec>& fit) {
  constexpr int n = Codec::kGroup;
  float aa = 0, ab = 0, bb = 0, xa = 0,
        xb = 0;  // a: level * code, b: minus the level of the minimum
  for (int g = 0; g < fit.kGroups; ++g) {
    const float* x = in.x + g * n;
    const float* w = in.w + g * n;
    const int8_t* codes = fit.codes + g * n;
    const auto s = static_cast<float>(fit.scales[g]);
    const auto m = static_cast<float>(-fit.mins[g]);
    const auto code = [&](int i) { return static_cast<float>(codes[i]); };
    aa += s * s * LaneSum<n>([&](int i) { return w[i] * code(i) * code(i); });
    ab += s * m * LaneSum<n>([&](int i) { return w[i] * code(i); });
    bb += m * m * LaneSum<n>([&](int i) { return w[i]; });
    xa += s * LaneSum<n>([&](int i) { return w[i] * x[i] * code(i); });
    xb += m * LaneSum<n>([&](int i) { return w[i] * x[i]; });
  }
  const float determinant = aa * bb - ab * ab;
  if (determinant > 0) {
    return {(bb * xa - ab * xb) / determinant, (aa * xb - ab * xa) / determinant};
  }
  return {aa > 0 ? xa / aa : 0, 0};
}

template <typename Codec>
inline AffineLevelFit<Codec> FitAffineLeveled(const FitInput& in) {
  constexpr int kGroups = AffineLevelFit<Codec>::kGroups;
  AffineFit wanted[kGroups];
  float scale = 0, min = 0;
  for (int g = 0; g < kGroups; ++g) {
    wanted[g] = SearchAffine<Codec::kGroup, Codec::kMost, MinSign::kNotAbove>(
        in.x + g * Codec::kGroup, in.w + g * Codec::kGroup);
    scale = std::max(scale, wanted[g].scale);
    min = std::max(min, -wanted[g].min);
  }
  scale /= Codec::kLevels;
  min /= Codec::kLevels;
  AffineLevelFit<Codec> best;
  for (int round = 0; round < 4; ++round) {
    const uint16_t d = in.F16(scale), dmin = in.F16(min);
    if (round > 0 && d == best.d && dmin == best.dmin) break;
    const AffineLevelFit<Codec> fit = FitAffineLevels<Codec>(in, d, dmin, wanted);
    if (!(fit.error < best.error)) break;
    best = fit;
    const AffineFit shared = BestAffineShared<Codec>(in, best);
    scale = std::max(shared.scale, 0.0f);
    min = std::max(shared.min, 0.0f);
  }
  return best;
}

}  // namespace lockstep
