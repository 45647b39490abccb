#include <bit>

#include "formats/gemm_entry.h"

#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {
namespace {

// Four registers of columns walk the roots together: enough to hide the latency of an addition.
constexpr int kWide = 4;
constexpr int kOpen = std::bit_width(static_cast<uint64_t>(kMaxLeaves)) + 1;

template <int V, class LoadAt, class StoreAt>
LOCKSTEP_INLINE void Fold(const RootFold& fold, LoadAt load, StoreAt store) {
  F32x16 open[kOpen][V];
  int depth = 0;
  for (int64_t r = 0; r < fold.roots(); ++r) {
    const int merges = fold.merges()[static_cast<size_t>(r)];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      F32x16 value = load(r, v);
      for (int merge = 1; merge <= merges; ++merge) value = Add(open[depth - merge][v], value);
      open[depth - merges][v] = value;
    }
    depth += 1 - merges;
  }
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) store(v, open[0][v]);
}

}  // namespace

void CombineRoots(const RootFold& fold, const float* const* rows, int64_t count, float* out) {
  int64_t c = 0;
  for (; c + 16 * kWide <= count; c += 16 * kWide) {
    Fold<kWide>(
        fold, [&](int64_t r, int v) { return Load(rows[r] + c + 16 * v); },
        [&](int v, F32x16 value) { Store(out + c + 16 * v, value); });
  }
  for (; c < count; c += 16) {
    const int left = static_cast<int>(count - c < 16 ? count - c : 16);
    Fold<1>(
        fold, [&](int64_t r, int) { return LoadPartial(rows[r] + c, left); },
        [&](int, F32x16 value) { StorePartial(out + c, value, left); });
  }
}

}  // namespace lockstep::LOCKSTEP_ISA
