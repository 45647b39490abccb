// The innermost steps of matrix multiplication, which strips and tiles share. Included by kernel files only, once per
// instruction set.
#pragma once

#include <utility>

#include "formats/codec.h"
#include "formats/gemm_entry.h"

namespace lockstep::LOCKSTEP_ISA {

// A binary counter of segments before its next one: `filled` levels hold sums, of which the next segment meets the last `merged`.
struct NextSegment {
  int filled, merged;
};
inline NextSegment After(int64_t segments) {
  const auto bits = static_cast<uint64_t>(segments);
  return {__builtin_popcountll(bits), __builtin_ctzll(~bits)};
}

// Panels met at once: as many accumulators as registers hold.
inline constexpr int kPanelPair = kRegisters >= 32 ? 2 : 1;

// Calls run(constant 0), run(constant 1) ... for indices that must be known when compiling.
template <int kCount, class F>
LOCKSTEP_INLINE void StaticFor(F run) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (run(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, kCount>());
}

// Where the activations of `N` tokens stand: at one 32-block, two blocks of their own.
template <int N>
struct ActivationBlock {
  const int8_t* codes[N];
  const float* scales[N];
  const int32_t* minus_sums[N];
  const float* scaled_sums[N];

  ActivationBlock(const QuantizedRows& rows, int64_t block) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      codes[n] = rows.codes + n * rows.stride + block * kBlockK;
      scales[n] = rows.scales + (n * rows.blocks() + block) * kBlockScales;
      minus_sums[n] = rows.minus_sums + (n * rows.blocks() + block) * kBlockScales;
      scaled_sums[n] = rows.scaled_sums + (n * rows.blocks() + block) * kBlockSums;
    }
  }
  void Next() {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      codes[n] += kBlockK;
      scales[n] += kBlockScales;
      minus_sums[n] += kBlockScales;
      scaled_sums[n] += kBlockSums;
    }
  }
};

// The integer sums of the products of half `half` of a 32-block, stored codes u against activations, for `P` panels and
// `N` tokens.
template <class C, int half, int P, int N>
LOCKSTEP_INLINE void BlockDots(const std::byte* const* blocks, const ActivationBlock<N>& x, I32x16 (&dots)[P][N]) {
  constexpr bool kBiased = C::kBias == 7;
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    const int32_t minus_sum = x.minus_sums[n][half];
    I32x16 start = 0;
    if constexpr (kBiased) {
      start = Dot4BiasedStart(-minus_sum);
    } else if constexpr (C::kBias >= 0) {
      start = ShiftLeft<C::kBias>(I32x16(minus_sum));
    }
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) dots[p][n] = start;
  }
  StaticFor<4>([&](auto i) {
    constexpr int g = i + 4 * half;
    U8x64 w[P];
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) w[p] = C::Codes::template Load<g>(blocks[p]);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const auto x4 = Broadcast4(x.codes[n] + 4 * g);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
        dots[p][n] = kBiased ? Dot4Biased(dots[p][n], w[p], x4) : Dot4(dots[p][n], w[p], x4);
      }
    }
  });
}

// Adds the products of one activation block, half `half` of a 32-block, to the running sums.
template <class C, int half, int P, int N>
LOCKSTEP_INLINE void AddBlock(const std::byte* const* blocks, const GroupScale* w, const ActivationBlock<N>& x,
                     F32x16 (&sums)[P][N]) {
  I32x16 dots[P][N];
  BlockDots<C, half, P, N>(blocks, x, dots);
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    const F32x16 scale_x = Set1(x.scales[n][half]);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) sums[p][n] = Fma(Mul(w[p].scale, scale_x), ToF32(dots[p][n]), sums[p][n]);
  }
}

// Adds one group of one 32-block to the running sums.
template <class C, int kGroup, int half, bool kHasMin, int P, int N>
LOCKSTEP_INLINE void AddGroup(const std::byte* const* blocks, const GroupScale* w,
                              const ActivationBlock<N>& x, F32x16 (&sums)[P][N]) {
  if constexpr (kGroup == kActivationBlock) {
    AddBlock<C, half, P, N>(blocks, w, x, sums);
  } else {
    AddBlock<C, 0, P, N>(blocks, w, x, sums);
    AddBlock<C, 1, P, N>(blocks, w, x, sums);
  }
  if constexpr (kHasMin) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const F32x16 sum_x = Set1(x.scaled_sums[n][kGroup == kActivationBlock ? half : 2]);
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) sums[p][n] = Fma(w[p].min, sum_x, sums[p][n]);
    }
  }
}

// Where the roots of a task go, one after the other as its segments end.
struct RootCursor {
  const MatMulTask& task;
  LeafRange run = task.run();
  int64_t segment = run.first;  // the one being summed
  int64_t root_end = task.RootEnd(run.first);
  float* y = task.y;

  // Whether the segment that now ends completes a root; moves on to the next segment.
  bool EndSegment() { return ++segment == root_end; }
  void NextRoot() {
    y += task.root_stride;
    if (segment < run.last) root_end = task.RootEnd(segment);
  }
  void Store(int64_t token, int64_t panel, F32x16 sum) const {
    float* at = y + token * task.y_stride + panel * kPanelRows;
    const int64_t rows = task.w->n - panel * kPanelRows;
    if (rows >= kPanelRows) {
      LOCKSTEP_ISA::Store(at, sum);
    } else {
      StorePartial(at, sum, static_cast<int>(rows));
    }
  }
};

}  // namespace lockstep::LOCKSTEP_ISA
