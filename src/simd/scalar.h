// One lane: the functions of simd/math.h on a single float, for the references that define an operation's bits.
// Not for kernel files (simd/simd.h says why).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "simd/math.h"

namespace lockstep::scalar {

// As F32x16, I32x16 and Mask16 of simd/simd.h, one lane wide; only what simd/math.h uses.
struct F32x1 {
  F32x1() = default;
  explicit F32x1(float c) : v(c) {}
  float v;
};
struct I32x1 {
  explicit I32x1(int32_t c) : v(c) {}
  int32_t v;
};
struct Mask1 {
  bool v;
};

inline F32x1 Add(F32x1 a, F32x1 b) { return F32x1(a.v + b.v); }
inline F32x1 Sub(F32x1 a, F32x1 b) { return F32x1(a.v - b.v); }
inline F32x1 Mul(F32x1 a, F32x1 b) { return F32x1(a.v * b.v); }
inline F32x1 Div(F32x1 a, F32x1 b) { return F32x1(a.v / b.v); }
inline F32x1 Fma(F32x1 a, F32x1 b, F32x1 c) { return F32x1(std::fma(a.v, b.v, c.v)); }
inline F32x1 Fnma(F32x1 a, F32x1 b, F32x1 c) { return F32x1(std::fma(-a.v, b.v, c.v)); }
inline F32x1 Min(F32x1 a, F32x1 b) { return a.v < b.v ? a : b; }
inline F32x1 Max(F32x1 a, F32x1 b) { return a.v > b.v ? a : b; }
inline F32x1 Neg(F32x1 a) { return F32x1(-a.v); }
inline F32x1 Abs(F32x1 a) { return F32x1(std::fabs(a.v)); }
inline Mask1 Less(F32x1 a, F32x1 b) { return {a.v < b.v}; }
inline F32x1 Select(Mask1 m, F32x1 a, F32x1 b) { return m.v ? a : b; }
inline F32x1 ToF32(I32x1 a) { return F32x1(static_cast<float>(a.v)); }
inline I32x1 BitsOf(F32x1 a) { return I32x1(std::bit_cast<int32_t>(a.v)); }
inline F32x1 FromBits(I32x1 a) { return F32x1(std::bit_cast<float>(a.v)); }
inline I32x1 And(I32x1 a, I32x1 b) { return I32x1(a.v & b.v); }
inline I32x1 Or(I32x1 a, I32x1 b) { return I32x1(a.v | b.v); }
// Wrapping, as lanes do: a NaN's integer is any value.
inline I32x1 Add(I32x1 a, I32x1 b) {
  return I32x1(static_cast<int32_t>(static_cast<uint32_t>(a.v) + static_cast<uint32_t>(b.v)));
}
inline I32x1 Sub(I32x1 a, I32x1 b) {
  return I32x1(static_cast<int32_t>(static_cast<uint32_t>(a.v) - static_cast<uint32_t>(b.v)));
}
template <int k>
I32x1 ShiftLeft(I32x1 a) {
  return I32x1(static_cast<int32_t>(static_cast<uint32_t>(a.v) << k));
}
template <int k>
I32x1 ShiftRight(I32x1 a) {
  return I32x1(a.v >> k);
}

// To the nearest integer, ties to even, for |x| <= 2^22; 0 for NaN.
inline int32_t RoundToInt(float x) {
  return std::isnan(x) ? 0 : static_cast<int32_t>((x + 0x1.8p23f) - 0x1.8p23f);
}
inline I32x1 RoundToInt(F32x1 a) { return I32x1(RoundToInt(a.v)); }

inline float Exp(float x) { return math::Exp(F32x1(x)).v; }
inline float Tanh(float x) { return math::Tanh(F32x1(x)).v; }
inline float Sigmoid(float x) { return math::Sigmoid(F32x1(x)).v; }
inline float Silu(float x) { return math::Silu(F32x1(x)).v; }
inline float GeluTanh(float x) { return math::GeluTanh(F32x1(x)).v; }
inline float GeluErf(float x) { return math::GeluErf(F32x1(x)).v; }
inline float GeluQuick(float x) { return math::GeluQuick(F32x1(x)).v; }
inline float Softplus(float x) { return math::Softplus(F32x1(x)).v; }
inline float Relu(float x) { return math::Relu(F32x1(x)).v; }
inline float ReluSquared(float x) { return math::ReluSquared(F32x1(x)).v; }

}  // namespace lockstep::scalar
