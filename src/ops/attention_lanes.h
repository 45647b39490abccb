// Attention's two products for a group of query rows, in registers. Included by kernel files only.
//
// Scores (lanes: 16 positions, summed over d) and values (lanes: 16 of dv, summed over positions)
// are one loop,
//     sums[s][n] = fma(a[k][n], b[k][s], sums[s][n]) for k ascending,
// so each load of K or V meets N rows, and each number of a row S loads.
#pragma once

#include <cstdint>
#include <utility>

#include "ops/attention_tiles.h"
#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {
namespace {

// How 16 cached numbers are loaded.
struct LanesF32 {
  static constexpr int64_t kBytes = 64;
  LOCKSTEP_INLINE static F32x16 Get(const std::byte* p) {
    return Load(reinterpret_cast<const float*>(p));
  }
};
struct LanesF16 {
  static constexpr int64_t kBytes = 32;
  LOCKSTEP_INLINE static F32x16 Get(const std::byte* p) {
    return LoadF16(reinterpret_cast<const uint16_t*>(p));
  }
};
struct LanesBf16 {
  static constexpr int64_t kBytes = 32;
  LOCKSTEP_INLINE static F32x16 Get(const std::byte* p) {
    return LoadBf16(reinterpret_cast<const uint16_t*>(p));
  }
};

// Sums that fit in registers beside what is loaded; the sizes of groups, ascending, are those up to
// it.
constexpr int kSums = kRegisters * 3 / 4;
constexpr int kAllGroupSizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24};
constexpr int kGroupSizes = kSums >= 24 ? 9 : kSums >= 6 ? 5 : 3;
constexpr int kLargestGroup = kAllGroupSizes[kGroupSizes - 1];
static_assert(kLargestGroup <= kSums && kLargestGroup <= kAttentionGroupRows);

// Loads that N rows meet at once: a power of two, `most` where registers allow.
constexpr int StripsFor(int n, int most) {
  int strips = most;
  while (strips > 1 && strips * n > kSums) strips /= 2;
  return strips;
}

// Calls run(constant 0), run(constant 1) ... so that arrays of sums become registers.
template <int kCount, class F>
LOCKSTEP_INLINE void Unrolled(F run) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (run(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

// What is read next. Up to kRowsToPrefetch rows the cache arrives more slowly than it is used, so
// it is asked for while products are summed, at the pace at which they read.
struct Ahead {
  const std::byte* at;
  const std::byte* end;
};
constexpr int kRowsToPrefetch = 8;

// a: [count] steps of kStepA, rows kRowA apart; b: [count] steps of step_b bytes, strips strip_b
// bytes apart.
template <class T, int N, int S, int kStepA, int kRowA>
LOCKSTEP_INLINE void Accumulate(const float* a, const std::byte* b, int64_t step_b, int64_t strip_b,
                                int64_t count, Ahead* ahead, F32x16 (&sums)[S][N]) {
  for (int64_t k = 0; k < count; ++k, a += kStepA, b += step_b) {
    if (N <= kRowsToPrefetch && ahead->at < ahead->end) {
      for (int line = 0; line < S * T::kBytes; line += 64) Prefetch(ahead->at + line);
      ahead->at += S * T::kBytes;
    }
    F32x16 lanes[S];
    Unrolled<S>([&](auto s) __attribute__((always_inline)) { lanes[s] = T::Get(b + s * strip_b); });
    Unrolled<N>([&](auto n) __attribute__((always_inline)) {
      const F32x16 x = Set1(a[n * kRowA]);
      Unrolled<S>([&](auto s) __attribute__((always_inline)) {
        sums[s][n] = Fma(x, lanes[s], sums[s][n]);
      });
    });
  }
}

// scores[n][lane of strip] = q . k for strips [strip, end) of a block's 4. q: [dk, N], k: [4, dk,
// 16], scores: [N, 64].
using ScoresFn = void(const float* q, const std::byte* k, int64_t dk, int strip, int end,
                      Ahead ahead, float* scores);
template <class T, int N, int S = StripsFor(N, 4)>
void Scores(const float* q, const std::byte* k, int64_t dk, int strip, int end, Ahead ahead,
            float* scores) {
  const int64_t strip_bytes = dk * T::kBytes;
  for (; strip + S <= end; strip += S) {
    F32x16 sums[S][N];
    Unrolled<S * N>([&](auto i) __attribute__((always_inline)) { sums[i / N][i % N] = Zero(); });
    Accumulate<T, N, S, N, 1>(q, k + strip * strip_bytes, T::kBytes, strip_bytes, dk, &ahead, sums);
    Unrolled<S * N>([&](auto i) __attribute__((always_inline)) {
      Store(scores + i % N * kAttentionBlock + (strip + i / N) * 16, sums[i / N][i % N]);
    });
  }
  if constexpr (S > 1) {
    if (strip < end) Scores<T, N, S / 2>(q, k, dk, strip, end, ahead, scores);
  }
}

// o[n] = o[n] correction[n], then + e[n][p] v[p] for p ascending; rows whose bit in `rows` is clear
// keep their o. e: [N, 64] from the first position on, v: [count, width], rows v_row_bytes apart, o: [N, width]; width is a
// multiple of 16.
using ValuesFn = void(const float* e, const std::byte* v, int64_t v_row_bytes, int64_t width, int64_t count,
                      const float* correction, uint32_t rows, Ahead ahead, float* o);
template <class T, int N, int S>
void ValuesFrom(int64_t column, const float* e, const std::byte* v, int64_t v_row_bytes, int64_t width, int64_t count,
                const float* correction, uint32_t rows, Ahead ahead, float* o) {
  for (; column + 16 * S <= width; column += 16 * S) {
    F32x16 sums[S][N];
    Unrolled<S * N>([&](auto i) __attribute__((always_inline)) {
      const float* sum = o + i % N * width + column + i / N * 16;
      sums[i / N][i % N] = Mul(Load(sum), Set1(correction[i % N]));
    });
    Accumulate<T, N, S, 1, kAttentionBlock>(e, v + column / 16 * T::kBytes, v_row_bytes,
                                            T::kBytes, count, &ahead, sums);
    Unrolled<N>([&](auto n) __attribute__((always_inline)) {
      if ((rows >> n & 1) == 0) return;
      Unrolled<S>([&](auto s) __attribute__((always_inline)) {
        Store(o + n * width + column + s * 16, sums[s][n]);
      });
    });
  }
  if constexpr (S > 1) {
    if (column < width) {
      ValuesFrom<T, N, S / 2>(column, e, v, v_row_bytes, width, count, correction, rows, ahead, o);
    }
  }
}
template <class T, int N>
void Values(const float* e, const std::byte* v, int64_t v_row_bytes, int64_t width, int64_t count,
            const float* correction, uint32_t rows, Ahead ahead, float* o) {
  ValuesFrom<T, N, StripsFor(N, 8)>(0, e, v, v_row_bytes, width, count, correction, rows, ahead, o);
}

// The functions of one kind of numbers, by the index of a group's size.
template <class T>
struct LaneFns {
  ScoresFn* scores[kGroupSizes];
  ValuesFn* values[kGroupSizes];
};
template <class T>
inline constexpr LaneFns<T> kLaneFns = []<int... i>(std::integer_sequence<int, i...>) {
  return LaneFns<T>{{&Scores<T, kAllGroupSizes[i]>...}, {&Values<T, kAllGroupSizes[i]>...}};
}
(std::make_integer_sequence<int, kGroupSizes>());

// The index of the size of a group that takes the first of `rows` rows.
inline int GroupSizeFor(int64_t rows) {
  int size = 0;
  while (size < kGroupSizes - 1 && kAllGroupSizes[size] < rows) ++size;
  return size;
}

// Functions for K or V of a kind; blocks are taken apart to f32 first.
inline ScoresFn* const* ScoresOf(KvKind kind) {
  return kind == KvKind::kF16    ? kLaneFns<LanesF16>.scores
         : kind == KvKind::kBf16 ? kLaneFns<LanesBf16>.scores
                                 : kLaneFns<LanesF32>.scores;
}
inline ValuesFn* const* ValuesOf(KvKind kind) {
  return kind == KvKind::kF16    ? kLaneFns<LanesF16>.values
         : kind == KvKind::kBf16 ? kLaneFns<LanesBf16>.values
                                 : kLaneFns<LanesF32>.values;
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_ISA
