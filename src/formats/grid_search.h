// Finding entries of the IQ codebooks: for each point of the lattice of all values a grid entry
// could have, its index where the grid holds it, or the entries near it.
#pragma once

#include <span>
#include <vector>

#include "formats/fit.h"
#include "formats/iq_grids.h"

namespace lockstep {

// kWidth: weights of an entry. A point is `kWidth` digits, the index of each weight's value among
// the grid's values.
template <int kWidth>
class GridSearch {
 public:
  static constexpr int kNear = 24;  // entries kept for a point outside the grid

  // values: ascending; entries: [n], each of values only.
  GridSearch(std::span<const int8_t> values, std::span<const std::array<int8_t, kWidth>> entries);

  // The entry for weights `x` under errors `w`: the nearest of all where that is the lattice point
  // next to x, else the best of those near that point. x: [kWidth] in units of the grid's values,
  // w: [kWidth]
  int Nearest(const float* x, const float* w) const;
  // The entry of exactly these values; some entry where there is none.
  int Index(const int8_t* values) const;
  const std::array<int8_t, kWidth>& entry(int index) const {
    return entries_[static_cast<size_t>(index)];
  }

 private:
  struct Near {
    uint16_t index[kNear];
  };
  int Point(const float* x) const;

  std::vector<float> middles_;  // between values
  std::span<const std::array<int8_t, kWidth>> entries_;
  std::vector<float> values_;      // of the entries, [entries, kWidth]
  std::vector<int32_t> of_point_;  // index of the entry, or -1 - index in near_
  std::vector<Near> near_;
};

// What the formats of one grid family search alike (formats/fit.h): 4-bit levels of IQ2, 3-bit levels of IQ1.
struct Iq2Levels {
  static constexpr bool kNeedsImportance = true;
  static constexpr SearchRange kSearch = {43, 0.75f, 1.3f, 17};
  static constexpr int kLow = 0, kHigh = 15, kFull = 15;
  static constexpr float kStep = 0.25f, kOffset = 0.125f;
  static constexpr float kStarts[] = {0.9f, 1.0f, 1.1f};
};
struct Iq1Levels {
  static constexpr bool kNeedsImportance = true;
  static constexpr SearchRange kSearch = {9, 1.0f, 3.4f, 30};
  static constexpr int kLow = 0, kHigh = 7, kFull = 7;
  static constexpr float kStep = 0.25f, kOffset = 0.125f;
  static constexpr float kStarts[] = {0.8f, 1.0f, 1.2f};
};

// One for each codebook, made at the first use. Values of the IQ1 grid are -1 0 1, of the others
// magnitudes.
const GridSearch<8>& Iq1Search();
const GridSearch<8>& Iq2XxsSearch();
const GridSearch<8>& Iq2XsSearch();
const GridSearch<8>& Iq2SSearch();
const GridSearch<4>& Iq3XxsSearch();
const GridSearch<4>& Iq3SSearch();

// Which signs a format can store for eight weights: all, or those with an even number of minuses.
enum class SignSet { kAll, kEven };

// Splits a block in signs and magnitudes. Where the number of minuses must be even and is not, the
// weight that matters least takes the wrong sign, and its magnitude here is negative. x, w,
// magnitudes: [256], signs: [32], a set bit is a minus
void SplitSigns(const float* x, const float* w, SignSet set, float* magnitudes, uint8_t* signs);

// Nearest of the codecs of magnitudes.
template <int kWidth, int n>
inline void NearestEntries(const GridSearch<kWidth>& search, const float* x, const float* w,
                           float inverse, int8_t* codes) {
  for (int k = 0; k < n; k += kWidth) {
    float scaled[kWidth];
    for (int i = 0; i < kWidth; ++i) scaled[i] = x[k + i] * inverse;
    std::copy_n(search.entry(search.Nearest(scaled, w + k)).data(), kWidth, codes + k);
  }
}

// ---- IQ1: ternary entries, shifted by an eighth ----

// The entries for n weights under one shift (1 or -1), as codes in eighths; returns the error in
// units of the codes. x, w, codes: [n]
template <int n>
inline float NearestShifted(const float* x, const float* w, float inverse, int shift,
                            int8_t* codes) {
  float error = 0;
  for (int k = 0; k < n; k += 8) {
    float scaled[8];
    for (int i = 0; i < 8; ++i) {
      scaled[i] = (x[k + i] * inverse - static_cast<float>(shift)) * 0.125f;
    }
    const auto& entry = Iq1Search().entry(Iq1Search().Nearest(scaled, w + k));
    ShiftedEighths(entry, shift < 0, codes + k);
    error += LaneSum<8>([&](int i) {
      const float off = x[k + i] * inverse - static_cast<float>(codes[k + i]);
      return w[k + i] * (off * off);
    });
  }
  return error;
}

// What a file stores for eight codes of NearestShifted.
struct ShiftedEntry {
  int index;
  bool down;
};
inline ShiftedEntry FindShifted(const int8_t* codes) {
  // Codes are a multiple of 8, plus or minus one.
  const bool down = (codes[0] & 7) == 7;
  int8_t values[8];
  for (int i = 0; i < 8; ++i) values[i] = static_cast<int8_t>((codes[i] + (down ? 1 : -1)) / 8);
  return {Iq1Search().Index(values), down};
}

}  // namespace lockstep
