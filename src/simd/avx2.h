// AVX2, FMA, F16C and BMI2: two registers a value. Contracts: simd/simd.h.
#pragma once

#include "simd/isa.h"
#include "simd/x86.h"

namespace lockstep::avx2 {

inline constexpr Isa kIsa = Isa::kAvx2;

struct F32x16 {
  F32x16() = default;
  LOCKSTEP_INLINE F32x16(float c) : lo(_mm256_set1_ps(c)), hi(lo) {}  // NOLINT: implicit by design
  LOCKSTEP_INLINE F32x16(__m256 low, __m256 high) : lo(low), hi(high) {}
  __m256 lo, hi;
};
struct I32x16 {
  I32x16() = default;
  LOCKSTEP_INLINE I32x16(int32_t c) : lo(_mm256_set1_epi32(c)), hi(lo) {}  // NOLINT: implicit
  LOCKSTEP_INLINE I32x16(__m256i low, __m256i high) : lo(low), hi(high) {}
  __m256i lo, hi;
};
struct Mask16 {
  __m256 lo, hi;  // all bits of a lane, or none
};
struct U8x64 {
  __m256i lo, hi;
};
struct I8x4 {
  __m256i v;
};

LOCKSTEP_INLINE I32x16 Iota() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
          _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
LOCKSTEP_INLINE __m256i* AsVector(void* p) { return static_cast<__m256i*>(p); }
LOCKSTEP_INLINE const __m256i* AsVector(const void* p) { return static_cast<const __m256i*>(p); }

LOCKSTEP_INLINE Mask16 Greater(I32x16 a, I32x16 b) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.lo, b.lo)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(a.hi, b.hi))};
}
LOCKSTEP_INLINE Mask16 Equal(I32x16 a, I32x16 b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}

// The loads' and stores' masks as integers.
LOCKSTEP_INLINE I32x16 FirstBits(int n) {
  Mask16 m = Greater(I32x16(n), Iota());
  return {_mm256_castps_si256(m.lo), _mm256_castps_si256(m.hi)};
}

LOCKSTEP_INLINE F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LOCKSTEP_INLINE void Store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
LOCKSTEP_INLINE F32x16 LoadPartial(const float* p, int n) {
  I32x16 m = FirstBits(n);
  return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
}
LOCKSTEP_INLINE void StorePartial(float* p, F32x16 a, int n) {
  I32x16 m = FirstBits(n);
  _mm256_maskstore_ps(p, m.lo, a.lo);
  _mm256_maskstore_ps(p + 8, m.hi, a.hi);
}
LOCKSTEP_INLINE I32x16 LoadI32(const int32_t* p) {
  return {_mm256_loadu_si256(AsVector(p)), _mm256_loadu_si256(AsVector(p + 8))};
}
LOCKSTEP_INLINE void StoreI32(int32_t* p, I32x16 a) {
  _mm256_storeu_si256(AsVector(p), a.lo);
  _mm256_storeu_si256(AsVector(p + 8), a.hi);
}
LOCKSTEP_INLINE I32x16 LoadI32Partial(const int32_t* p, int n) {
  I32x16 m = FirstBits(n);
  return {_mm256_maskload_epi32(p, m.lo), _mm256_maskload_epi32(p + 8, m.hi)};
}
LOCKSTEP_INLINE void StoreI32Partial(int32_t* p, I32x16 a, int n) {
  I32x16 m = FirstBits(n);
  _mm256_maskstore_epi32(p, m.lo, a.lo);
  _mm256_maskstore_epi32(p + 8, m.hi, a.hi);
}

// p[0..15] split into 8 even and 8 odd: within 128-bit lanes first, then the 64-bit quarters are
// put in order.
LOCKSTEP_INLINE __m256 OrderQuarters(__m256 v) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xD8));
}
LOCKSTEP_INLINE void LoadInterleaved(const float* p, F32x16* even, F32x16* odd) {
  F32x16 a = Load(p);
  F32x16 b = Load(p + 16);
  even->lo = OrderQuarters(_mm256_shuffle_ps(a.lo, a.hi, 0x88));
  odd->lo = OrderQuarters(_mm256_shuffle_ps(a.lo, a.hi, 0xDD));
  even->hi = OrderQuarters(_mm256_shuffle_ps(b.lo, b.hi, 0x88));
  odd->hi = OrderQuarters(_mm256_shuffle_ps(b.lo, b.hi, 0xDD));
}
LOCKSTEP_INLINE F32x16 Interleave8(__m256 even, __m256 odd) {
  __m256 low = _mm256_unpacklo_ps(even, odd);
  __m256 high = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
LOCKSTEP_INLINE void StoreInterleaved(float* p, F32x16 even, F32x16 odd) {
  Store(p, Interleave8(even.lo, odd.lo));
  Store(p + 16, Interleave8(even.hi, odd.hi));
}

LOCKSTEP_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE F32x16 Sqrt(F32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
LOCKSTEP_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
LOCKSTEP_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
LOCKSTEP_INLINE F32x16 Min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

LOCKSTEP_INLINE Mask16 Less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
LOCKSTEP_INLINE Mask16 LessEqual(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LE_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LE_OQ)};
}
LOCKSTEP_INLINE Mask16 Equal(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
LOCKSTEP_INLINE Mask16 IsNan(F32x16 a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
LOCKSTEP_INLINE Mask16 And(Mask16 a, Mask16 b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Mask16 Or(Mask16 a, Mask16 b) {
  return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)};
}
LOCKSTEP_INLINE Mask16 Not(Mask16 a) {
  __m256 ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  return {_mm256_xor_ps(a.lo, ones), _mm256_xor_ps(a.hi, ones)};
}
LOCKSTEP_INLINE uint32_t MaskBits(Mask16 m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo) | _mm256_movemask_ps(m.hi) << 8);
}
LOCKSTEP_INLINE F32x16 Select(Mask16 m, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}

LOCKSTEP_INLINE I32x16 RoundToInt(F32x16 a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
LOCKSTEP_INLINE F32x16 ToF32(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
LOCKSTEP_INLINE I32x16 BitsOf(F32x16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
LOCKSTEP_INLINE F32x16 FromBits(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
LOCKSTEP_INLINE I32x16 Select(Mask16 m, I32x16 a, I32x16 b) {
  return BitsOf(Select(m, FromBits(a), FromBits(b)));
}

LOCKSTEP_INLINE I32x16 Add(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
LOCKSTEP_INLINE I32x16 Sub(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
LOCKSTEP_INLINE I32x16 Mul(I32x16 a, I32x16 b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}
LOCKSTEP_INLINE I32x16 And(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
LOCKSTEP_INLINE I32x16 Or(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
LOCKSTEP_INLINE I32x16 Xor(I32x16 a, I32x16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
LOCKSTEP_INLINE I32x16 Max(I32x16 a, I32x16 b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
LOCKSTEP_INLINE I32x16 Min(I32x16 a, I32x16 b) {
  return {_mm256_min_epi32(a.lo, b.lo), _mm256_min_epi32(a.hi, b.hi)};
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftLeft(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, k), _mm256_slli_epi32(a.hi, k)};
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRight(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, k), _mm256_srai_epi32(a.hi, k)};
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRightLogical(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, k), _mm256_srli_epi32(a.hi, k)};
}

LOCKSTEP_INLINE float ReduceAdd(F32x16 a) { return ReduceAdd8(_mm256_add_ps(a.lo, a.hi)); }
LOCKSTEP_INLINE float ReduceMax(F32x16 a) { return ReduceMax8(_mm256_max_ps(a.lo, a.hi)); }
LOCKSTEP_INLINE int32_t ReduceAdd(I32x16 a) { return ReduceAdd8(_mm256_add_epi32(a.lo, a.hi)); }
LOCKSTEP_INLINE int32_t ReduceMax(I32x16 a) { return ReduceMax8(_mm256_max_epi32(a.lo, a.hi)); }

LOCKSTEP_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
LOCKSTEP_INLINE F32x16 LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 8))};
}
LOCKSTEP_INLINE void StoreF16(uint16_t* p, F32x16 a) {
  __m128i low = _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m128i high = _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(AsVector(p), _mm256_set_m128i(high, low));
}
LOCKSTEP_INLINE I32x16 LoadU16(const uint16_t* p) {
  return {_mm256_cvtepu16_epi32(Load128(p)), _mm256_cvtepu16_epi32(Load128(p + 8))};
}
LOCKSTEP_INLINE void StoreU16(uint16_t* p, I32x16 a) {
  __m256i packed = _mm256_packus_epi32(a.lo, a.hi);
  _mm256_storeu_si256(AsVector(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
LOCKSTEP_INLINE I32x16 LoadI8AsI32(const int8_t* p) {
  __m128i bytes = Load128(p);
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes))};
}
LOCKSTEP_INLINE void StoreAsI8(int8_t* p, I32x16 a) {
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8);
  __m128i low = _mm256_castsi256_si128(words);
  __m128i high = _mm256_extracti128_si256(words, 1);
  _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(p)), _mm_packs_epi16(low, high));
}

LOCKSTEP_INLINE U8x64 LoadBytes(const void* p) {
  return {_mm256_loadu_si256(AsVector(p)), _mm256_loadu_si256(AsVector(p) + 1)};
}
LOCKSTEP_INLINE void StoreBytes(void* p, U8x64 a) {
  _mm256_storeu_si256(AsVector(p), a.lo);
  _mm256_storeu_si256(AsVector(p) + 1, a.hi);
}
LOCKSTEP_INLINE U8x64 SetBytes(uint8_t c) {
  __m256i v = _mm256_set1_epi8(static_cast<char>(c));
  return {v, v};
}
LOCKSTEP_INLINE U8x64 AndBytes(U8x64 a, U8x64 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
LOCKSTEP_INLINE U8x64 OrBytes(U8x64 a, U8x64 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
LOCKSTEP_INLINE U8x64 XorBytes(U8x64 a, U8x64 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
LOCKSTEP_INLINE U8x64 AddBytes(U8x64 a, U8x64 b) {
  return {_mm256_add_epi8(a.lo, b.lo), _mm256_add_epi8(a.hi, b.hi)};
}
LOCKSTEP_INLINE U8x64 SubBytes(U8x64 a, U8x64 b) {
  return {_mm256_sub_epi8(a.lo, b.lo), _mm256_sub_epi8(a.hi, b.hi)};
}
template <int k>
LOCKSTEP_INLINE U8x64 ShiftLeftBytes(U8x64 a) {
  return AndBytes({_mm256_slli_epi16(a.lo, k), _mm256_slli_epi16(a.hi, k)},
                  SetBytes(static_cast<uint8_t>(0xFF << k)));
}
template <int k>
LOCKSTEP_INLINE U8x64 ShiftRightBytes(U8x64 a) {
  return AndBytes({_mm256_srli_epi16(a.lo, k), _mm256_srli_epi16(a.hi, k)}, SetBytes(0xFF >> k));
}
LOCKSTEP_INLINE U8x64 LoadTable16(const void* p) {
  __m256i v = _mm256_broadcastsi128_si256(Load128(p));
  return {v, v};
}
LOCKSTEP_INLINE U8x64 Lookup16(U8x64 table, U8x64 index) {
  return {_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
}

// Sums of 4 products u8 * i8; a pair of products must fit 16 bits.
LOCKSTEP_INLINE __m256i DotHalf(__m256i acc, __m256i u, __m256i a) {
  __m256i pairs = _mm256_maddubs_epi16(u, a);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
LOCKSTEP_INLINE I8x4 Broadcast4(const int8_t* p) { return {_mm256_set1_epi32(FourBytes(p))}; }
LOCKSTEP_INLINE I32x16 Dot4(I32x16 acc, U8x64 u, I8x4 a) {
  return {DotHalf(acc.lo, u.lo, a.v), DotHalf(acc.hi, u.hi, a.v)};
}
// |w - 128| <= 128 is a valid unsigned byte and its sign moves to a, so a pair is at most 2 * 128 *
// 127 < 2^15.
LOCKSTEP_INLINE __m256i DotBiasedHalf(__m256i acc, __m256i w, __m256i a) {
  __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
  return DotHalf(acc, _mm256_abs_epi8(s), _mm256_sign_epi8(a, s));
}
LOCKSTEP_INLINE I32x16 Dot4BiasedStart(int32_t) { return I32x16(0); }
LOCKSTEP_INLINE I32x16 Dot4Biased(I32x16 acc, U8x64 w, I8x4 a) {
  return {DotBiasedHalf(acc.lo, w.lo, a.v), DotBiasedHalf(acc.hi, w.hi, a.v)};
}

}  // namespace lockstep::avx2
