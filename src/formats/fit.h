// Fitting: encoders that search for the codes and scales of least weighted squared error. They are
// for files, where time does not count; `encode` is the fast way, with an error bound for each
// weight.
//
// Where scales are themselves coded (K-quants, IQ) the search goes up and down: the best scale of
// each group by itself, then the shared scale that represents them, then for each group the coded
// scale near its best one that gives the least error, then the shared scale again by least squares.
// An answer is kept only where the error of what a reader will decode became smaller.
#pragma once

#include <array>
#include <cfloat>

#include "formats/block.h"

namespace lockstep {

// One block to fit, scaled by a power of two so that the search can neither overflow nor lose bits.
struct FitInput {
  const float* x;  // [block] largest magnitude in [1, 2), or all zero
  const float* w;  // [block] weights of squared errors, not negative, some above zero
  int exponent;    // the file's weights are x * 2^exponent

  // The f16 nearest to a scale, and what it means for x.
  uint16_t F16(float scale) const { return F16Nearest(std::ldexp(scale, exponent)); }
  float Value(uint16_t f16) const { return std::ldexp(F16ToF32(f16), -exponent); }
};

// Fills scaled: [n] and returns the exponent of FitInput.
inline int ScaleForFit(const float* in, int n, float* scaled) {
  const float most = AbsMax(in, n);
  const int exponent = most > 0 && std::isfinite(most) ? std::ilogb(most) : 0;
  for (int i = 0; i < n; ++i) scaled[i] = std::ldexp(in[i], -exponent);
  return exponent;
}

// The weights of squared errors: what the caller knows of each column (null: nothing), times a
// little more for large weights, which do more to the sums that they enter. x: [n] scaled,
// importance: [n] not negative, w: [n]
inline void FitWeights(const float* x, const float* importance, int n, float* w) {
  float squares = 0, most = 0;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  if (importance != nullptr) most = AbsMax(importance, n);
  const float mean = squares / static_cast<float>(n);
  // A block of columns that were never used is fitted as if they all were.
  const bool known = most > 0 && std::isfinite(most);
  const int exponent = known ? std::ilogb(most) : 0;
  for (int i = 0; i < n; ++i) {
    w[i] = std::sqrt(mean + x[i] * x[i]);
    if (known) w[i] *= std::ldexp(importance[i], -exponent);
  }
}

// Format::fit of a codec.
template <typename Codec>
void FitBlocks(const float* in, const float* importance, int64_t blocks, std::byte* out) {
  using Block = typename Codec::Block;
  constexpr int n = Codec::kBlock;
  float x[n], w[n];
  for (int64_t b = 0; b < blocks; ++b, in += n, out += sizeof(Block)) {
    const int exponent = ScaleForFit(in, n, x);
    FitWeights(x, importance == nullptr ? nullptr : importance + b * n, n, w);
    const Block block = Codec::Fit({x, w, exponent});
    std::memcpy(out, &block, sizeof(Block));
  }
}

template <typename Codec>
constexpr void AddFit(Format& format) {
  format.fit = FitBlocks<Codec>;
  if (format.encode == nullptr) {
    format.encode = [](const float* in, int64_t blocks, std::byte* out) {
      FitBlocks<Codec>(in, nullptr, blocks, out);
    };
  }
  format.needs_importance = requires { Codec::kNeedsImportance; };
}

// The sum of term(0) .. term(n - 1) in eight lanes, which the compiler may put in vectors.
template <int n, typename Term>
inline float LaneSum(Term term) {
  static_assert(n % 8 == 0);
  float lanes[8] = {};
#pragma GCC unroll 4
  for (int i = 0; i < n; i += 8) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) lanes[k] += term(i + k);
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// ---- One scale: x ~ scale * code ----

// A scale, and the error it saves: the sum of w * (x - scale * code)^2 is that of w * x^2 less
// `gain`.
struct ScaleFit {
  float scale = 0;
  float gain = 0;
};

// The best scale for given codes. x, w, codes: [n]
template <int n>
inline ScaleFit BestScale(const float* x, const float* w, const int8_t* codes) {
  const auto code = [&](int i) { return static_cast<float>(codes[i]); };
  const float xq = LaneSum<n>([&](int i) { return w[i] * x[i] * code(i); });
  const float qq = LaneSum<n>([&](int i) { return w[i] * code(i) * code(i); });
  if (!(qq > 0)) return {};
  return {xq / qq, xq / qq * xq};
}

template <int n>
inline float ScaleError(const float* x, const float* w, const int8_t* codes, float scale) {
  return LaneSum<n>([&](int i) {
    const float off = x[i] - scale * static_cast<float>(codes[i]);
    return w[i] * (off * off);
  });
}

// Which scales a search tries for a group: those at which its extreme weight gets the codes reach *
// from .. reach * to.
struct SearchRange {
  // The code of largest magnitude. Negative: the extreme weight gets it whatever its sign, so that
  // scales have any sign; positive: codes go as far either way, and scales are positive.
  float reach;
  float from, to;
  int tries;
};

// A codec for fitting, on top of what BlockFormat wants:
//   static constexpr SearchRange kSearch;
//   // codes for x * inverse with the least weighted error; x, w: [kGroup]
//   static void Nearest(const float* x, const float* w, float inverse, int8_t* codes);
//
// The best scale of one group by itself.
template <typename Codec>
inline float SearchScale(const float* x, const float* w) {
  constexpr int n = Codec::kGroup;
  const SearchRange& range = Codec::kSearch;
  const float extreme = range.reach < 0 ? Extreme(x, n) : AbsMax(x, n);
  if (extreme == 0) return 0;
  int8_t codes[n];
  ScaleFit best;
  const auto attempt = [&](float inverse) {
    Codec::Nearest(x, w, inverse, codes);
    const ScaleFit fit = BestScale<n>(x, w, codes);
    const bool better = fit.gain > best.gain;
    if (better) best = fit;
    return better;
  };
  for (int k = 0; k < range.tries; ++k) {
    const float part = static_cast<float>(k) / static_cast<float>(range.tries - 1);
    attempt(range.reach * (range.from + (range.to - range.from) * part) / extreme);
  }
  for (int k = 0; k < 3 && best.scale != 0 && attempt(1 / best.scale); ++k) {
  }
  return best.scale;
}

// A block of one group and one f16 scale.
template <typename Codec>
struct SingleFit {
  uint16_t d = 0;
  int8_t codes[Codec::kBlock];
  float error = FLT_MAX;
};

// Tries one scale; keeps it in `best` where the error is smaller.
template <typename Codec>
inline void TrySingle(const FitInput& in, uint16_t d, SingleFit<Codec>& best) {
  SingleFit<Codec> fit;
  fit.d = d;
  const float scale = in.Value(d);
  Codec::Nearest(in.x, in.w, Inverse(scale), fit.codes);
  fit.error = ScaleError<Codec::kBlock>(in.x, in.w, fit.codes, scale);
  if (fit.error < best.error) best = fit;
}

// The fit of a block whose d is one f16: the best scale, and the one at which the extreme weight
// gets the code of largest magnitude.
template <typename Codec>
inline SingleFit<Codec> FitSingle(const FitInput& in) {
  static_assert(Codec::kBlock == Codec::kGroup);
  SingleFit<Codec> best;
  const float reach = Codec::kSearch.reach;
  const float extreme = reach < 0 ? Extreme(in.x, Codec::kBlock) : AbsMax(in.x, Codec::kBlock);
  TrySingle<Codec>(in, in.F16(extreme / reach), best);
  TrySingle<Codec>(in, in.F16(SearchScale<Codec>(in.x, in.w)), best);
  return best;
}

// ---- Coded scales: x ~ d * Multiplier(level) * code ----

template <typename Codec>
struct LevelFit {
  static constexpr int kGroups = Codec::kBlock / Codec::kGroup;
  uint16_t d = 0;
  int8_t levels[kGroups] = {};
  int8_t codes[Codec::kBlock] = {};
  float error = FLT_MAX;
};

// On top of SearchScale's codec:
//   static constexpr int kLow, kHigh;       // levels
//   static constexpr float kStep, kOffset;  // multiplier of a level: kStep * level + kOffset
//   static constexpr int kFull;             // the level that the largest scale gets
template <typename Codec>
constexpr float Multiplier(int level) {
  return Codec::kStep * static_cast<float>(level) + Codec::kOffset;
}

// Chooses levels and codes of every group for a given `d`; `wanted`: [groups], the best scales.
template <typename Codec>
inline LevelFit<Codec> FitLevels(const FitInput& in, uint16_t d, const float* wanted) {
  constexpr int n = Codec::kGroup;
  LevelFit<Codec> fit;
  fit.d = d;
  fit.error = 0;
  const float value = in.Value(d);
  const float inverse = Inverse(value);
  for (int g = 0; g < fit.kGroups; ++g) {
    const float level = (wanted[g] * inverse - Codec::kOffset) / Codec::kStep;
    const int middle = RoundWithin(level, Codec::kLow, Codec::kHigh);
    float least = FLT_MAX;
    for (int l = std::max(middle - 1, Codec::kLow); l <= std::min(middle + 1, Codec::kHigh); ++l) {
      int8_t codes[n];
      const float scale = value * Multiplier<Codec>(l);
      Codec::Nearest(in.x + g * n, in.w + g * n, Inverse(scale), codes);
      const float error = ScaleError<n>(in.x + g * n, in.w + g * n, codes, scale);
      if (!(error < least)) continue;
      least = error;
      fit.levels[g] = static_cast<int8_t>(l);
      std::copy_n(codes, n, fit.codes + g * n);
    }
    fit.error += least;
  }
  return fit;
}

// The best `d` for given levels and codes, or 0.
template <typename Codec>
inline float BestShared(const FitInput& in, const LevelFit<Codec>& fit) {
  constexpr int n = Codec::kGroup;
  float xq = 0, qq = 0;
  for (int g = 0; g < fit.kGroups; ++g) {
    const float* x = in.x + g * n;
    const float* w = in.w + g * n;
    const int8_t* codes = fit.codes + g * n;
    const float m = Multiplier<Codec>(fit.levels[g]);
    const auto code = [&](int i) { return static_cast<float>(codes[i]); };
    xq += m * LaneSum<n>([&](int i) { return w[i] * x[i] * code(i); });
    qq += m * m * LaneSum<n>([&](int i) { return w[i] * code(i) * code(i); });
  }
  return qq > 0 ? xq / qq : 0;
}

template <typename Codec>
inline LevelFit<Codec> FitLeveled(const FitInput& in) {
  constexpr int kGroups = LevelFit<Codec>::kGroups;
  float wanted[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    wanted[g] = SearchScale<Codec>(in.x + g * Codec::kGroup, in.w + g * Codec::kGroup);
  }
  const float full = Extreme(wanted, kGroups) / Multiplier<Codec>(Codec::kFull);
  LevelFit<Codec> best;
  for (float start : Codec::kStarts) {
    float shared = full * start;
    LevelFit<Codec> here;
    for (int round = 0; round < 4; ++round) {
      const uint16_t d = in.F16(shared);
      if (d == here.d && round > 0) break;
      const LevelFit<Codec> fit = FitLevels<Codec>(in, d, wanted);
      if (!(fit.error < here.error)) break;
      here = fit;
      shared = BestShared<Codec>(in, here);
    }
    if (here.error < best.error) best = here;
  }
  return best;
}

// Integer codes kLeast .. kMost, each weight by itself: the Nearest of most codecs.
template <int kLeast, int kMost, int n>
inline void NearestInteger(const float* x, float inverse, int8_t* codes) {
  RoundCodes(x, n, 0, inverse, kLeast, kMost, codes);
}

}  // namespace lockstep
