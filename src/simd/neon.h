// Armv8.2 NEON with dot product and half precision: four registers a value. Contracts: simd/simd.h.
#pragma once

#include <arm_neon.h>

#include "simd/isa.h"

namespace lockstep::neon {

inline constexpr Isa kIsa = Isa::kNeon;

struct F32x16 {
  F32x16() = default;
  LOCKSTEP_INLINE F32x16(float c) {  // NOLINT: implicit by design
    for (float32x4_t& x : v) x = vdupq_n_f32(c);
  }
  float32x4_t v[4];
};
struct I32x16 {
  I32x16() = default;
  LOCKSTEP_INLINE I32x16(int32_t c) {  // NOLINT: implicit by design
    for (int32x4_t& x : v) x = vdupq_n_s32(c);
  }
  int32x4_t v[4];
};
struct Mask16 {
  uint32x4_t v[4];  // all bits of a lane, or none
};
struct U8x64 {
  uint8x16_t v[4];
};
struct I8x4 {
  int8x16_t v;
};

// out[i] = f(a[i], ...) for each of the four registers.
template <typename R, typename F, typename... V>
LOCKSTEP_INLINE R Map(F f, const V&... a) {
  R out;
  for (int i = 0; i < 4; ++i) out.v[i] = f(a.v[i]...);
  return out;
}

LOCKSTEP_INLINE F32x16 Load(const float* p) {
  F32x16 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vld1q_f32(p + 4 * i);
  return out;
}
LOCKSTEP_INLINE void Store(float* p, F32x16 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
LOCKSTEP_INLINE I32x16 LoadI32(const int32_t* p) {
  I32x16 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vld1q_s32(p + 4 * i);
  return out;
}
LOCKSTEP_INLINE void StoreI32(int32_t* p, I32x16 a) {
  for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, a.v[i]);
}
// Through a buffer: NEON has no masked access, and a row's end may be a page's end.
LOCKSTEP_INLINE F32x16 LoadPartial(const float* p, int n) {
  float buffer[16] = {};
  for (int i = 0; i < n; ++i) buffer[i] = p[i];
  return Load(buffer);
}
LOCKSTEP_INLINE void StorePartial(float* p, F32x16 a, int n) {
  float buffer[16];
  Store(buffer, a);
  for (int i = 0; i < n; ++i) p[i] = buffer[i];
}
LOCKSTEP_INLINE I32x16 LoadI32Partial(const int32_t* p, int n) {
  int32_t buffer[16] = {};
  for (int i = 0; i < n; ++i) buffer[i] = p[i];
  return LoadI32(buffer);
}
LOCKSTEP_INLINE void StoreI32Partial(int32_t* p, I32x16 a, int n) {
  int32_t buffer[16];
  StoreI32(buffer, a);
  for (int i = 0; i < n; ++i) p[i] = buffer[i];
}
LOCKSTEP_INLINE void LoadInterleaved(const float* p, F32x16* even, F32x16* odd) {
  for (int i = 0; i < 4; ++i) {
    float32x4x2_t pair = vld2q_f32(p + 8 * i);
    even->v[i] = pair.val[0];
    odd->v[i] = pair.val[1];
  }
}
LOCKSTEP_INLINE void StoreInterleaved(float* p, F32x16 even, F32x16 odd) {
  for (int i = 0; i < 4; ++i) vst2q_f32(p + 8 * i, {{even.v[i], odd.v[i]}});
}
LOCKSTEP_INLINE I32x16 Iota() {
  constexpr int32_t kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return LoadI32(kLanes);
}

LOCKSTEP_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return Map<F32x16>([](auto x, auto y) { return vaddq_f32(x, y); }, a, b);
}
LOCKSTEP_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return Map<F32x16>([](auto x, auto y) { return vsubq_f32(x, y); }, a, b);
}
LOCKSTEP_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return Map<F32x16>([](auto x, auto y) { return vmulq_f32(x, y); }, a, b);
}
LOCKSTEP_INLINE F32x16 Div(F32x16 a, F32x16 b) {
  return Map<F32x16>([](auto x, auto y) { return vdivq_f32(x, y); }, a, b);
}
LOCKSTEP_INLINE F32x16 Sqrt(F32x16 a) {
  return Map<F32x16>([](auto x) { return vsqrtq_f32(x); }, a);
}
LOCKSTEP_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return Map<F32x16>([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
}
LOCKSTEP_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return Map<F32x16>([](auto x, auto y, auto z) { return vfmsq_f32(z, x, y); }, a, b, c);
}
// NEON's own minimum and maximum return NaN where either operand is; the contract says b.
LOCKSTEP_INLINE float32x4_t Min4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
LOCKSTEP_INLINE float32x4_t Max4(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
LOCKSTEP_INLINE F32x16 Min(F32x16 a, F32x16 b) {
  return Map<F32x16>([](auto x, auto y) { return Min4(x, y); }, a, b);
}
LOCKSTEP_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return Map<F32x16>([](auto x, auto y) { return Max4(x, y); }, a, b);
}

LOCKSTEP_INLINE Mask16 Less(F32x16 a, F32x16 b) {
  return Map<Mask16>([](auto x, auto y) { return vcltq_f32(x, y); }, a, b);
}
LOCKSTEP_INLINE Mask16 LessEqual(F32x16 a, F32x16 b) {
  return Map<Mask16>([](auto x, auto y) { return vcleq_f32(x, y); }, a, b);
}
LOCKSTEP_INLINE Mask16 Equal(F32x16 a, F32x16 b) {
  return Map<Mask16>([](auto x, auto y) { return vceqq_f32(x, y); }, a, b);
}
LOCKSTEP_INLINE Mask16 IsNan(F32x16 a) {
  return Map<Mask16>([](auto x) { return vmvnq_u32(vceqq_f32(x, x)); }, a);
}
LOCKSTEP_INLINE Mask16 And(Mask16 a, Mask16 b) {
  return Map<Mask16>([](auto x, auto y) { return vandq_u32(x, y); }, a, b);
}
LOCKSTEP_INLINE Mask16 Or(Mask16 a, Mask16 b) {
  return Map<Mask16>([](auto x, auto y) { return vorrq_u32(x, y); }, a, b);
}
LOCKSTEP_INLINE Mask16 Not(Mask16 a) {
  return Map<Mask16>([](auto x) { return vmvnq_u32(x); }, a);
}
LOCKSTEP_INLINE uint32_t MaskBits(Mask16 m) {
  constexpr uint32_t kWeights[4] = {1, 2, 4, 8};
  uint32x4_t weights = vld1q_u32(kWeights);
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= vaddvq_u32(vandq_u32(m.v[i], weights)) << 4 * i;
  return bits;
}
LOCKSTEP_INLINE F32x16 Select(Mask16 m, F32x16 a, F32x16 b) {
  return Map<F32x16>([](auto k, auto x, auto y) { return vbslq_f32(k, x, y); }, m, a, b);
}
LOCKSTEP_INLINE I32x16 Select(Mask16 m, I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto k, auto x, auto y) { return vbslq_s32(k, x, y); }, m, a, b);
}

LOCKSTEP_INLINE I32x16 RoundToInt(F32x16 a) {
  return Map<I32x16>([](auto x) { return vcvtnq_s32_f32(x); }, a);
}
LOCKSTEP_INLINE F32x16 ToF32(I32x16 a) {
  return Map<F32x16>([](auto x) { return vcvtq_f32_s32(x); }, a);
}
LOCKSTEP_INLINE I32x16 BitsOf(F32x16 a) {
  return Map<I32x16>([](auto x) { return vreinterpretq_s32_f32(x); }, a);
}
LOCKSTEP_INLINE F32x16 FromBits(I32x16 a) {
  return Map<F32x16>([](auto x) { return vreinterpretq_f32_s32(x); }, a);
}

LOCKSTEP_INLINE I32x16 Add(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return vaddq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE I32x16 Sub(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return vsubq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE I32x16 Mul(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return vmulq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE I32x16 And(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return vandq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE I32x16 Or(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return vorrq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE I32x16 Xor(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return veorq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE I32x16 Max(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return vmaxq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE I32x16 Min(I32x16 a, I32x16 b) {
  return Map<I32x16>([](auto x, auto y) { return vminq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE Mask16 Greater(I32x16 a, I32x16 b) {
  return Map<Mask16>([](auto x, auto y) { return vcgtq_s32(x, y); }, a, b);
}
LOCKSTEP_INLINE Mask16 Equal(I32x16 a, I32x16 b) {
  return Map<Mask16>([](auto x, auto y) { return vceqq_s32(x, y); }, a, b);
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftLeft(I32x16 a) {
  return Map<I32x16>([](auto x) { return vshlq_n_s32(x, k); }, a);
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRight(I32x16 a) {
  return Map<I32x16>([](auto x) { return vshrq_n_s32(x, k); }, a);
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRightLogical(I32x16 a) {
  return Map<I32x16>(
      [](auto x) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), k)); }, a);
}

LOCKSTEP_INLINE float ReduceAdd(F32x16 a) {
  float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
LOCKSTEP_INLINE float ReduceMax(F32x16 a) {
  float32x4_t four = Max4(Max4(a.v[0], a.v[2]), Max4(a.v[1], a.v[3]));
  float32x4_t two = Max4(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(Max4(two, vextq_f32(two, two, 1)), 0);
}
LOCKSTEP_INLINE int32_t ReduceAdd(I32x16 a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[2]), vaddq_s32(a.v[1], a.v[3])));
}
LOCKSTEP_INLINE int32_t ReduceMax(I32x16 a) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[2]), vmaxq_s32(a.v[1], a.v[3])));
}

LOCKSTEP_INLINE F32x16 LoadF16(const uint16_t* p) {
  F32x16 out;
  for (int i = 0; i < 4; ++i) {
    out.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
  }
  return out;
}
LOCKSTEP_INLINE void StoreF16(uint16_t* p, F32x16 a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}
LOCKSTEP_INLINE I32x16 LoadU16(const uint16_t* p) {
  I32x16 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p + 4 * i)));
  return out;
}
LOCKSTEP_INLINE void StoreU16(uint16_t* p, I32x16 a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vmovn_u32(vreinterpretq_u32_s32(a.v[i])));
}
LOCKSTEP_INLINE I32x16 LoadI8AsI32(const int8_t* p) {
  int8x16_t bytes = vld1q_s8(p);
  int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  int16x8_t high = vmovl_s8(vget_high_s8(bytes));
  I32x16 out;
  out.v[0] = vmovl_s16(vget_low_s16(low));
  out.v[1] = vmovl_s16(vget_high_s16(low));
  out.v[2] = vmovl_s16(vget_low_s16(high));
  out.v[3] = vmovl_s16(vget_high_s16(high));
  return out;
}
LOCKSTEP_INLINE void StoreAsI8(int8_t* p, I32x16 a) {
  int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

LOCKSTEP_INLINE U8x64 LoadBytes(const void* p) {
  U8x64 out;
  for (int i = 0; i < 4; ++i) out.v[i] = vld1q_u8(static_cast<const uint8_t*>(p) + 16 * i);
  return out;
}
LOCKSTEP_INLINE void StoreBytes(void* p, U8x64 a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(static_cast<uint8_t*>(p) + 16 * i, a.v[i]);
}
LOCKSTEP_INLINE U8x64 SetBytes(uint8_t c) {
  uint8x16_t v = vdupq_n_u8(c);
  return {{v, v, v, v}};
}
LOCKSTEP_INLINE U8x64 AndBytes(U8x64 a, U8x64 b) {
  return Map<U8x64>([](auto x, auto y) { return vandq_u8(x, y); }, a, b);
}
LOCKSTEP_INLINE U8x64 OrBytes(U8x64 a, U8x64 b) {
  return Map<U8x64>([](auto x, auto y) { return vorrq_u8(x, y); }, a, b);
}
LOCKSTEP_INLINE U8x64 XorBytes(U8x64 a, U8x64 b) {
  return Map<U8x64>([](auto x, auto y) { return veorq_u8(x, y); }, a, b);
}
LOCKSTEP_INLINE U8x64 AddBytes(U8x64 a, U8x64 b) {
  return Map<U8x64>([](auto x, auto y) { return vaddq_u8(x, y); }, a, b);
}
LOCKSTEP_INLINE U8x64 SubBytes(U8x64 a, U8x64 b) {
  return Map<U8x64>([](auto x, auto y) { return vsubq_u8(x, y); }, a, b);
}
template <int k>
LOCKSTEP_INLINE U8x64 ShiftLeftBytes(U8x64 a) {
  return Map<U8x64>([](auto x) { return vshlq_n_u8(x, k); }, a);
}
template <int k>
LOCKSTEP_INLINE U8x64 ShiftRightBytes(U8x64 a) {
  return Map<U8x64>([](auto x) { return vshrq_n_u8(x, k); }, a);
}
LOCKSTEP_INLINE U8x64 LoadTable16(const void* p) {
  uint8x16_t v = vld1q_u8(static_cast<const uint8_t*>(p));
  return {{v, v, v, v}};
}
LOCKSTEP_INLINE U8x64 Lookup16(U8x64 table, U8x64 index) {
  return Map<U8x64>([](auto t, auto i) { return vqtbl1q_u8(t, i); }, table, index);
}

LOCKSTEP_INLINE I8x4 Broadcast4(const int8_t* p) {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return {vreinterpretq_s8_s32(vdupq_n_s32(bytes))};
}
LOCKSTEP_INLINE I32x16 Dot4(I32x16 acc, U8x64 u, I8x4 a) {
  return Map<I32x16>([a](auto sum, auto x) { return vdotq_s32(sum, vreinterpretq_s8_u8(x), a.v); },
                     acc, u);
}
LOCKSTEP_INLINE I32x16 Dot4BiasedStart(int32_t) { return I32x16(0); }
LOCKSTEP_INLINE I32x16 Dot4Biased(I32x16 acc, U8x64 w, I8x4 a) {
  return Dot4(acc, XorBytes(w, SetBytes(0x80)), a);
}

}  // namespace lockstep::neon
