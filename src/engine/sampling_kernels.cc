#include "engine/sampling_kernels.h"

#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {

using sampling::kBlock;

namespace {

constexpr size_t kLanes = 16;
constexpr float kLargest = 3.402823466e38f;

// 2^y for -126 <= y <= 0: the integer part goes to the exponent; for the rest, in [-1/2, 1/2], the
// polynomial's relative error is below 1e-7.
LOCKSTEP_INLINE F32x16 PowerOfTwo(F32x16 y) {
  constexpr float kCoefficients[] = {0.0013264731969684362f, 0.009671513922512531f,
                                     0.05550733581185341f,   0.24022242426872253f,
                                     0.6931470036506653f,    1.0f};
  I32x16 n = RoundToInt(y);
  F32x16 f = Sub(y, ToF32(n));
  F32x16 p = Set1(0);
  for (float c : kCoefficients) p = Add(Mul(p, f), c);
  return FromBits(Add(BitsOf(p), ShiftLeft<23>(n)));
}

}  // namespace

bool SamplingBlockMax(const float* x, size_t blocks, float* max) {
  Mask16 legal = FirstLanes(kLanes);
  for (size_t block = 0; block < blocks; ++block, x += kBlock) {
    F32x16 greatest = Load(x);
    for (size_t i = 0; i < kBlock; i += kLanes) {
      F32x16 v = Load(x + i);
      greatest = Max(v, greatest);
      legal = And(legal, LessEqual(v, kLargest));
    }
    max[block] = ReduceMax(greatest);
  }
  return MaskBits(legal) == (1 << kLanes) - 1;
}

void SamplingExpSums(const float* x, size_t blocks, float max, float* sums) {
  constexpr float kLog2E = 1.44269504f;
  for (size_t block = 0; block < blocks; ++block, x += kBlock) {
    F32x16 sum = Zero();
    for (size_t i = 0; i < kBlock; i += kLanes) {
      F32x16 y = Mul(Sub(Load(x + i), max), kLog2E);
      sum = Add(sum, PowerOfTwo(Max(y, -126.0f)));
    }
    sums[block] = ReduceAdd(sum);
  }
}

}  // namespace lockstep::LOCKSTEP_ISA
