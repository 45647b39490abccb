#include "ops/moe_ffn.h"
#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {

FoldExpertsFn FoldExperts;

void FoldExperts(const ExpertFold& fold) {
  constexpr int kVectors = kColumnsOfFold / 16;
  for (int64_t t = 0; t < fold.tokens; ++t) {
    F32x16 open[kMostOpenExperts][kVectors];
    open[0][0] = open[0][1] = -0.0f;
    int count = 0;
    for (int32_t i = fold.begin[t]; i < fold.begin[t + 1]; ++i) {
      const float* leaf = fold.leaves + fold.rows[i] * kColumnsOfFold;
      F32x16 sum[kVectors] = {Load(leaf), Load(leaf + 16)};
      for (int merge = 0; merge < fold.merges[i]; ++merge) {
        --count;
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[v] = Add(open[count][v], sum[v]);
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) open[count][v] = sum[v];
      ++count;
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) Store(fold.y + t * kColumnsOfFold + 16 * v, open[0][v]);
  }
}

}  // namespace lockstep::LOCKSTEP_ISA
