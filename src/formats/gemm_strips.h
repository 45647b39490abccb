// Matrix multiplication of few tokens, and of float weights: panels are read once, codes are taken apart in registers.
// Included by kernel files only, once per instruction set.
#pragma once

#include <algorithm>

#include "base/checked.h"
#include "formats/gemm_groups.h"

namespace lockstep::LOCKSTEP_ISA {

// Folds segment sums in the left-complete binary tree with a binary counter. `V` values side by side.
template <int V>
struct TreeCounter {
  F32x16 level[kTreeLevels][V];
  int64_t count = 0;

  // Takes the sums of the next segment and leaves them zero.
  void Push(F32x16* sums) {
    const auto [filled, merged] = After(count);
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      F32x16 sum = sums[v];
      for (int d = 1; d <= merged; ++d) sum = Add(level[filled - d][v], sum);
      level[filled - merged][v] = sum;
      sums[v] = Zero();
    }
    ++count;
  }

  // The sum of all segments, the last of which is in `sums`; begins anew.
  void Finish(F32x16* sums) {
    for (int at = __builtin_popcountll(static_cast<uint64_t>(count)); at-- > 0;) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sums[v] = Add(level[at][v], sums[v]);
    }
    count = 0;
  }
};

// The running sums of a strip, folded as segments end.
template <int P, int N>
class StripSums {
 public:
  StripSums(const MatMulTask& task, int64_t token, int64_t panel)
      : cursor_{task}, token_(token), panel_(panel) {}

  // Takes the sums of the segment that ends and leaves them zero.
  LOCKSTEP_INLINE void EndSegment(F32x16 (&sums)[P][N]) {
    if (!cursor_.EndSegment()) return tree_.Push(&sums[0][0]);
    tree_.Finish(&sums[0][0]);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        cursor_.Store(token_ + n, panel_ + p, sums[p][n]);
        sums[p][n] = Zero();
      }
    }
    cursor_.NextRoot();
  }

 private:
  RootCursor cursor_;
  TreeCounter<P * N> tree_;
  int64_t token_, panel_;
};

// `P` panels from `panel` on for `N` tokens from `token` on, codes taken apart in registers.
template <class C, int P, int N>
void Strip(const MatMulTask& task, int64_t token, int64_t panel) {
  using Scales = typename C::Scales;
  constexpr int kBlocks = Scales::kUnit / kBlockK;
  constexpr int kGroups = kBlockK / Scales::kGroup;
  // Far enough ahead to cover memory latency at full bandwidth with two streams a core (bench/: 2 KiB; more did not help).
  constexpr int64_t kAhead = 2304;
  const LeafRange run = task.run();
  const int64_t segment_units = CeilDiv(task.segment_length(), Scales::kUnit), units = task.w->k / Scales::kUnit;
  const int64_t first_unit = run.first * segment_units;
  const std::byte* unit[P];
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
    unit[p] = task.w->data + (panel + p) * task.w->panel_bytes() + first_unit * C::kUnitBytes;
  }
  ActivationBlock<N> x(task.q.From(token), first_unit * kBlocks);
  F32x16 sums[P][N];
  for (auto& row : sums) std::fill(row, row + N, Zero());
  StripSums<P, N> roots(task, token, panel);
  for (int64_t s = run.first; s < run.last; ++s) {
    const int64_t end = std::min(units, (s + 1) * segment_units);
    for (int64_t u = s * segment_units; u < end; ++u) {
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) {
        for (int64_t line = 0; line < C::kUnitBytes; line += 64) Prefetch(unit[p] + kAhead + line);
      }
      for (int b = 0; b < kBlocks; ++b) {
        const std::byte* blocks[P];
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) blocks[p] = unit[p] + Scales::kBytes + b * C::Codes::kBytes;
        StaticFor<kGroups>([&](auto g) {
          GroupScale w[P];
#pragma GCC unroll 16
          for (int p = 0; p < P; ++p) w[p] = Scales::Load(unit[p], b * kGroups + g);
          AddGroup<C, Scales::kGroup, g, Scales::kHasMin, P, N>(blocks, w, x, sums);
        });
        x.Next();
      }
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) unit[p] += C::kUnitBytes;
    }
    roots.EndSegment(sums);
  }
}

// Calls run(token, N as a constant) over all tokens, with the largest N of 8, 4, 2, 1 that registers bear and tokens fill.
template <class F>
inline void ForTokenSteps(int64_t tokens, F run) {
  constexpr int kMost = kRegisters >= 32 ? 8 : kRegisters >= 8 ? 2 : 1;
  int64_t t = 0;
  StaticFor<4>([&](auto i) {
    constexpr int N = 8 >> i;
    if constexpr (N <= kMost) {
      for (; t + N <= tokens; t += N) run(t, std::integral_constant<int, N>());
    }
  });
}

template <class C>
void Strips(const MatMulTask& task) {
  ForTokenSteps(task.tokens, [&](int64_t token, auto n) {
    constexpr int N = decltype(n)::value;
    // Two streams a core keep memory busy; with many tokens one panel fills the registers.
    constexpr int P = N <= 4 && kRegisters >= 32 ? 2 : 1;
    int64_t panel = task.panel_begin;
    for (; panel + P <= task.panel_end; panel += P) Strip<C, P, N>(task, token, panel);
    for (; panel < task.panel_end; ++panel) Strip<C, 1, N>(task, token, panel);
  });
}

// Plain numbers: T::Load gives 16 weights of one k.
struct Float32 {
  using Stored = float;
  static F32x16 LoadWeights(const float* w) { return Load(w); }
};
struct Float16 {
  using Stored = uint16_t;
  static F32x16 LoadWeights(const uint16_t* w) { return LoadF16(w); }
};
struct Bfloat16 {
  using Stored = uint16_t;
  static F32x16 LoadWeights(const uint16_t* w) { return LoadBf16(w); }
};

template <class T, int P, int N>
void FloatStrip(const MatMulTask& task, int64_t token, int64_t panel) {
  const PackedMatrix& w = *task.w;
  const typename T::Stored* weights[P];
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p) {
    weights[p] = reinterpret_cast<const typename T::Stored*>(w.data + (panel + p) * w.panel_bytes());
  }
  const float* x[N];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) x[n] = task.x + (token + n) * task.x_stride;
  F32x16 sums[P][N];
  for (auto& row : sums) std::fill(row, row + N, Zero());
  StripSums<P, N> roots(task, token, panel);
  const LeafRange run = task.run();
  for (int64_t s = run.first; s < run.last; ++s) {
    const int64_t begin = s * task.segment_length(), end = std::min(w.k, begin + task.segment_length());
    for (int64_t i = begin; i < end; ++i) {
      F32x16 v[P];
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p) v[p] = T::LoadWeights(weights[p] + i * kPanelRows);
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) {
        const F32x16 xi = Set1(x[n][i]);
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) sums[p][n] = Fma(v[p], xi, sums[p][n]);
      }
    }
    roots.EndSegment(sums);
  }
}

template <class T>
void Float(const MatMulTask& task) {
  constexpr int P = kPanelPair;
  int64_t panel = task.panel_begin;
  for (; panel < task.panel_end; panel += P) {
    const bool pair = panel + P <= task.panel_end;
    ForTokenSteps(task.tokens, [&](int64_t token, auto n) {
      constexpr int N = decltype(n)::value;
      if (pair) {
        FloatStrip<T, P, N>(task, token, panel);
      } else {
        FloatStrip<T, 1, N>(task, token, panel);
      }
    });
  }
}

}  // namespace lockstep::LOCKSTEP_ISA
