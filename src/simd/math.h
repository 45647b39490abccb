// Elementary functions on lanes, written once: polynomials with FMA on the functions of simd/simd.h, so every
// instruction set gives the same bits. `V` is an F32x16, or scalar::F32x1 in references (simd/scalar.h).
//
// Error bounds are in units in the last place (ulp) of the exact result rounded to f32; simd_test.cc holds them against
// long double. NaN gives NaN. Coefficients are our own weighted minimax fits; the error of each fit stands beside it.
#pragma once

#include <cstdint>

#include "simd/inline.h"

namespace lockstep::math {

// 2^n for -126 <= n <= 127. `I` is the integer type of the lanes.
template <typename I>
LOCKSTEP_INLINE auto PowerOfTwo(I n) {
  return FromBits(ShiftLeft<23>(Add(n, I(127))));
}

// x = n ln 2 + r with |r| <= ln(2)/2, for |x| <= 2^16; returns n and sets *r.
template <typename V>
LOCKSTEP_INLINE auto SplitByLn2(V x, V* r) {
  auto n = RoundToInt(Mul(x, V(0x1.715476p+0f)));
  V whole = ToF32(n);
  *r = Fnma(whole, V(0x1.62e4p-1f), x);  // 16 bits of ln 2: the product is exact
  *r = Fnma(whole, V(0x1.7f7d1cp-20f), *r);
  return n;
}

// exp(r) - 1 for |r| <= ln(2)/2, relative error of the fit 2^-26.
template <typename V>
LOCKSTEP_INLINE V ExpMinus1Near0(V r) {
  V p = V(0x1.6bebfep-10f);
  p = Fma(p, r, V(0x1.1227b0p-7f));
  p = Fma(p, r, V(0x1.555674p-5f));
  p = Fma(p, r, V(0x1.5554b0p-3f));
  p = Fma(p, r, V(0x1.fffffep-2f));
  return Fma(Mul(r, r), p, r);
}

// e^x, 1.5 ulp, denormal results included. 0 below -104, +Inf above 88.73, exactly 1 at 0.
template <typename V>
LOCKSTEP_INLINE V Exp(V x) {
  x = Min(V(89.0f), Max(V(-104.0f), x));
  V r;
  auto n = SplitByLn2(x, &r);
  V p = Add(ExpMinus1Near0(r), V(1.0f));
  // Two factors: the first keeps p normal, so that the second rounds a denormal result once.
  auto half = ShiftRight<1>(n);
  return Mul(Mul(p, PowerOfTwo(half)), PowerOfTwo(Sub(n, half)));
}

// 1 / (1 + e^-x), 3 ulp; 0 at -Inf (below -104), 1 at +Inf.
template <typename V>
LOCKSTEP_INLINE V Sigmoid(V x) {
  V e = Exp(Neg(Abs(x)));
  return Div(Select(Less(x, V(0.0f)), e, V(1.0f)), Add(e, V(1.0f)));
}

// tanh x, 3 ulp; keeps the sign of zero, +-1 at +-Inf.
template <typename V>
LOCKSTEP_INLINE V Tanh(V x) {
  V a = Min(V(10.0f), Abs(x));
  V r;
  auto n = SplitByLn2(Add(a, a), &r);
  V power = PowerOfTwo(n);
  V m = Fma(power, ExpMinus1Near0(r), Sub(power, V(1.0f)));  // e^2a - 1
  V t = Div(m, Add(m, V(2.0f)));
  auto sign = And(BitsOf(x), decltype(n)(INT32_MIN));
  return FromBits(Or(BitsOf(t), sign));
}

// x where a factor beside it falls to 0 before x ends at -Inf: keeps -Inf * 0 from becoming NaN.
template <typename V>
LOCKSTEP_INLINE V BoundBelow(V x) {
  return Max(V(-200.0f), x);
}

// x sigmoid(x), error <= 4 ulp or 2^-142; -0 at -Inf, +Inf at +Inf.
template <typename V>
LOCKSTEP_INLINE V Silu(V x) {
  return Mul(BoundBelow(x), Sigmoid(x));
}

// x sigmoid(1.702 x) (GELU's quick form), error <= 2^-22 |x|.
template <typename V>
LOCKSTEP_INLINE V GeluQuick(V x) {
  return Mul(BoundBelow(x), Sigmoid(Mul(x, V(1.702f))));
}

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as x sigmoid(2 ...) to keep the tail; error <= 2^-22 |x|.
template <typename V>
LOCKSTEP_INLINE V GeluTanh(V x) {
  V inner = Mul(x, Fma(Mul(x, x), V(0x1.2444f6p-4f), V(0x1.988454p+0f)));
  return Mul(BoundBelow(x), Sigmoid(inner));
}

// x/2 (1 + erf(x / sqrt 2)), error <= 6 ulp or 2^-142; -0 at -Inf, +Inf at +Inf.
template <typename V>
LOCKSTEP_INLINE V GeluErf(V x) {
  // The lower tail of the normal distribution at -a is exp(-a^2/2) t Q(t) with t = 1 / (1 + 0.3 a); the fit's
  // relative error is 2^-28 for a <= 14.6, where the exponential ends.
  V a = Min(V(14.6f), Abs(x));
  V t = Div(V(1.0f), Fma(a, V(0.3f), V(1.0f)));
  V q = V(-0x1.51eb60p-6f);
  q = Fma(q, t, V(0x1.cc9216p-4f));
  q = Fma(q, t, V(-0x1.d36c5ep-3f));
  q = Fma(q, t, V(0x1.88d528p-3f));
  q = Fma(q, t, V(-0x1.456b3ep-4f));
  q = Fma(q, t, V(0x1.89ea20p-4f));
  q = Fma(q, t, V(0x1.41104ep-4f));
  q = Fma(q, t, V(0x1.c38764p-4f));
  q = Fma(q, t, V(0x1.e9c3fcp-4f));
  q = Fma(q, t, V(0x1.ea3c9ap-4f));
  // a^2 = square + rest exactly; without the rest the exponential would be off by a^2/4 ulp.
  V square = Mul(a, a);
  V rest = Fma(a, a, Neg(square));
  V e = Exp(Mul(square, V(-0.5f)));
  V tail = Mul(Mul(q, t), Fma(Mul(e, rest), V(-0.5f), e));
  return Select(Less(x, V(0.0f)), Neg(Mul(a, tail)), Fnma(a, tail, x));
}

// log(1 + e) for 0 <= e <= 1, 3 ulp, as 2 atanh(e / (2 + e)); the fit's relative error is 2^-27.
template <typename V>
LOCKSTEP_INLINE V Log1pUnit(V e) {
  V s = Div(e, Add(e, V(2.0f)));
  V z = Mul(s, s);
  V p = V(0x1.1f0a4ep-2f);
  p = Fma(p, z, V(0x1.1eb2b8p-2f));
  p = Fma(p, z, V(0x1.99d2acp-2f));
  p = Fma(p, z, V(0x1.5555p-1f));
  return Fma(Mul(s, z), p, Add(s, s));
}

// log(1 + e^x), 4 ulp; 0 at -Inf, +Inf at +Inf.
template <typename V>
LOCKSTEP_INLINE V Softplus(V x) {
  return Add(Max(V(0.0f), x), Log1pUnit(Exp(Neg(Abs(x)))));
}

// max(x, 0), its square (+Inf where that overflows). Zero for -0.
template <typename V>
LOCKSTEP_INLINE V Relu(V x) {
  return Max(V(0.0f), x);
}
template <typename V>
LOCKSTEP_INLINE V ReluSquared(V x) {
  V r = Relu(x);
  return Mul(r, r);
}

}  // namespace lockstep::math
