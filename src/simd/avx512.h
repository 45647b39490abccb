// AVX-512 F, BW, DQ, VL and VNNI: one register a value. Contracts: simd/simd.h.
#pragma once

#include "simd/isa.h"
#include "simd/x86.h"

namespace lockstep::avx512 {

inline constexpr Isa kIsa = Isa::kAvx512;

struct F32x16 {
  F32x16() = default;
  LOCKSTEP_INLINE F32x16(float c) : v(_mm512_set1_ps(c)) {}  // NOLINT: implicit by design
  LOCKSTEP_INLINE explicit F32x16(__m512 x) : v(x) {}
  __m512 v;
};
struct I32x16 {
  I32x16() = default;
  LOCKSTEP_INLINE I32x16(int32_t c) : v(_mm512_set1_epi32(c)) {}  // NOLINT: implicit by design
  LOCKSTEP_INLINE explicit I32x16(__m512i x) : v(x) {}
  __m512i v;
};
struct Mask16 {
  __mmask16 v;
};
struct U8x64 {
  __m512i v;
};
struct I8x4 {
  __m512i v;
};

LOCKSTEP_INLINE __mmask16 FirstBits(int n) {
  return static_cast<__mmask16>(_bzhi_u32(0xFFFF, static_cast<uint32_t>(n)));
}

LOCKSTEP_INLINE F32x16 Load(const float* p) { return F32x16(_mm512_loadu_ps(p)); }
LOCKSTEP_INLINE void Store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
LOCKSTEP_INLINE F32x16 LoadPartial(const float* p, int n) {
  return F32x16(_mm512_maskz_loadu_ps(FirstBits(n), p));
}
LOCKSTEP_INLINE void StorePartial(float* p, F32x16 a, int n) {
  _mm512_mask_storeu_ps(p, FirstBits(n), a.v);
}
LOCKSTEP_INLINE I32x16 LoadI32(const int32_t* p) { return I32x16(_mm512_loadu_si512(p)); }
LOCKSTEP_INLINE void StoreI32(int32_t* p, I32x16 a) { _mm512_storeu_si512(p, a.v); }
LOCKSTEP_INLINE I32x16 LoadI32Partial(const int32_t* p, int n) {
  return I32x16(_mm512_maskz_loadu_epi32(FirstBits(n), p));
}
LOCKSTEP_INLINE void StoreI32Partial(int32_t* p, I32x16 a, int n) {
  _mm512_mask_storeu_epi32(p, FirstBits(n), a.v);
}

LOCKSTEP_INLINE I32x16 Iota() {
  return I32x16(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

LOCKSTEP_INLINE void LoadInterleaved(const float* p, F32x16* even, F32x16* odd) {
  __m512 low = _mm512_loadu_ps(p);
  __m512 high = _mm512_loadu_ps(p + 16);
  __m512i index = _mm512_slli_epi32(Iota().v, 1);
  even->v = _mm512_permutex2var_ps(low, index, high);
  odd->v = _mm512_permutex2var_ps(low, _mm512_add_epi32(index, _mm512_set1_epi32(1)), high);
}
LOCKSTEP_INLINE void StoreInterleaved(float* p, F32x16 even, F32x16 odd) {
  __m512i index = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(even.v, index, odd.v));
  index = _mm512_add_epi32(index, _mm512_set1_epi32(8));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(even.v, index, odd.v));
}

LOCKSTEP_INLINE F32x16 Add(F32x16 a, F32x16 b) { return F32x16(_mm512_add_ps(a.v, b.v)); }
LOCKSTEP_INLINE F32x16 Sub(F32x16 a, F32x16 b) { return F32x16(_mm512_sub_ps(a.v, b.v)); }
LOCKSTEP_INLINE F32x16 Mul(F32x16 a, F32x16 b) { return F32x16(_mm512_mul_ps(a.v, b.v)); }
LOCKSTEP_INLINE F32x16 Div(F32x16 a, F32x16 b) { return F32x16(_mm512_div_ps(a.v, b.v)); }
LOCKSTEP_INLINE F32x16 Sqrt(F32x16 a) { return F32x16(_mm512_sqrt_ps(a.v)); }
LOCKSTEP_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return F32x16(_mm512_fmadd_ps(a.v, b.v, c.v));
}
LOCKSTEP_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return F32x16(_mm512_fnmadd_ps(a.v, b.v, c.v));
}
LOCKSTEP_INLINE F32x16 Min(F32x16 a, F32x16 b) { return F32x16(_mm512_min_ps(a.v, b.v)); }
LOCKSTEP_INLINE F32x16 Max(F32x16 a, F32x16 b) { return F32x16(_mm512_max_ps(a.v, b.v)); }

LOCKSTEP_INLINE Mask16 Less(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
LOCKSTEP_INLINE Mask16 LessEqual(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)};
}
LOCKSTEP_INLINE Mask16 Equal(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
LOCKSTEP_INLINE Mask16 IsNan(F32x16 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
LOCKSTEP_INLINE Mask16 And(Mask16 a, Mask16 b) { return {_kand_mask16(a.v, b.v)}; }
LOCKSTEP_INLINE Mask16 Or(Mask16 a, Mask16 b) { return {_kor_mask16(a.v, b.v)}; }
LOCKSTEP_INLINE Mask16 Not(Mask16 a) { return {_knot_mask16(a.v)}; }
LOCKSTEP_INLINE uint32_t MaskBits(Mask16 m) { return m.v; }
LOCKSTEP_INLINE F32x16 Select(Mask16 m, F32x16 a, F32x16 b) {
  return F32x16(_mm512_mask_blend_ps(m.v, b.v, a.v));
}
LOCKSTEP_INLINE I32x16 Select(Mask16 m, I32x16 a, I32x16 b) {
  return I32x16(_mm512_mask_blend_epi32(m.v, b.v, a.v));
}

LOCKSTEP_INLINE I32x16 RoundToInt(F32x16 a) { return I32x16(_mm512_cvtps_epi32(a.v)); }
LOCKSTEP_INLINE F32x16 ToF32(I32x16 a) { return F32x16(_mm512_cvtepi32_ps(a.v)); }
LOCKSTEP_INLINE I32x16 BitsOf(F32x16 a) { return I32x16(_mm512_castps_si512(a.v)); }
LOCKSTEP_INLINE F32x16 FromBits(I32x16 a) { return F32x16(_mm512_castsi512_ps(a.v)); }

LOCKSTEP_INLINE I32x16 Add(I32x16 a, I32x16 b) { return I32x16(_mm512_add_epi32(a.v, b.v)); }
LOCKSTEP_INLINE I32x16 Sub(I32x16 a, I32x16 b) { return I32x16(_mm512_sub_epi32(a.v, b.v)); }
LOCKSTEP_INLINE I32x16 Mul(I32x16 a, I32x16 b) { return I32x16(_mm512_mullo_epi32(a.v, b.v)); }
LOCKSTEP_INLINE I32x16 And(I32x16 a, I32x16 b) { return I32x16(_mm512_and_si512(a.v, b.v)); }
LOCKSTEP_INLINE I32x16 Or(I32x16 a, I32x16 b) { return I32x16(_mm512_or_si512(a.v, b.v)); }
LOCKSTEP_INLINE I32x16 Xor(I32x16 a, I32x16 b) { return I32x16(_mm512_xor_si512(a.v, b.v)); }
LOCKSTEP_INLINE I32x16 Max(I32x16 a, I32x16 b) { return I32x16(_mm512_max_epi32(a.v, b.v)); }
LOCKSTEP_INLINE I32x16 Min(I32x16 a, I32x16 b) { return I32x16(_mm512_min_epi32(a.v, b.v)); }
LOCKSTEP_INLINE Mask16 Greater(I32x16 a, I32x16 b) { return {_mm512_cmpgt_epi32_mask(a.v, b.v)}; }
LOCKSTEP_INLINE Mask16 Equal(I32x16 a, I32x16 b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
template <int k>
LOCKSTEP_INLINE I32x16 ShiftLeft(I32x16 a) {
  return I32x16(_mm512_slli_epi32(a.v, k));
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRight(I32x16 a) {
  return I32x16(_mm512_srai_epi32(a.v, k));
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRightLogical(I32x16 a) {
  return I32x16(_mm512_srli_epi32(a.v, k));
}

LOCKSTEP_INLINE __m256 HighHalf(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }
LOCKSTEP_INLINE __m256i HighHalf(__m512i v) { return _mm512_extracti32x8_epi32(v, 1); }
LOCKSTEP_INLINE float ReduceAdd(F32x16 a) {
  return ReduceAdd8(_mm256_add_ps(_mm512_castps512_ps256(a.v), HighHalf(a.v)));
}
LOCKSTEP_INLINE float ReduceMax(F32x16 a) {
  return ReduceMax8(_mm256_max_ps(_mm512_castps512_ps256(a.v), HighHalf(a.v)));
}
LOCKSTEP_INLINE int32_t ReduceAdd(I32x16 a) {
  return ReduceAdd8(_mm256_add_epi32(_mm512_castsi512_si256(a.v), HighHalf(a.v)));
}
LOCKSTEP_INLINE int32_t ReduceMax(I32x16 a) {
  return ReduceMax8(_mm256_max_epi32(_mm512_castsi512_si256(a.v), HighHalf(a.v)));
}

LOCKSTEP_INLINE F32x16 LoadF16(const uint16_t* p) {
  return F32x16(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
LOCKSTEP_INLINE void StoreF16(uint16_t* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LOCKSTEP_INLINE I32x16 LoadU16(const uint16_t* p) {
  return I32x16(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
LOCKSTEP_INLINE void StoreU16(uint16_t* p, I32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
LOCKSTEP_INLINE I32x16 LoadI8AsI32(const int8_t* p) {
  return I32x16(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
LOCKSTEP_INLINE void StoreAsI8(int8_t* p, I32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

LOCKSTEP_INLINE U8x64 LoadBytes(const void* p) { return {_mm512_loadu_si512(p)}; }
LOCKSTEP_INLINE void StoreBytes(void* p, U8x64 a) { _mm512_storeu_si512(p, a.v); }
LOCKSTEP_INLINE U8x64 SetBytes(uint8_t c) { return {_mm512_set1_epi8(static_cast<char>(c))}; }
LOCKSTEP_INLINE U8x64 AndBytes(U8x64 a, U8x64 b) { return {_mm512_and_si512(a.v, b.v)}; }
LOCKSTEP_INLINE U8x64 OrBytes(U8x64 a, U8x64 b) { return {_mm512_or_si512(a.v, b.v)}; }
LOCKSTEP_INLINE U8x64 XorBytes(U8x64 a, U8x64 b) { return {_mm512_xor_si512(a.v, b.v)}; }
LOCKSTEP_INLINE U8x64 AddBytes(U8x64 a, U8x64 b) { return {_mm512_add_epi8(a.v, b.v)}; }
LOCKSTEP_INLINE U8x64 SubBytes(U8x64 a, U8x64 b) { return {_mm512_sub_epi8(a.v, b.v)}; }
template <int k>
LOCKSTEP_INLINE U8x64 ShiftLeftBytes(U8x64 a) {
  return AndBytes({_mm512_slli_epi16(a.v, k)}, SetBytes(static_cast<uint8_t>(0xFF << k)));
}
template <int k>
LOCKSTEP_INLINE U8x64 ShiftRightBytes(U8x64 a) {
  return AndBytes({_mm512_srli_epi16(a.v, k)}, SetBytes(0xFF >> k));
}
LOCKSTEP_INLINE U8x64 LoadTable16(const void* p) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
LOCKSTEP_INLINE U8x64 Lookup16(U8x64 table, U8x64 index) {
  return {_mm512_shuffle_epi8(table.v, index.v)};
}

LOCKSTEP_INLINE I8x4 Broadcast4(const int8_t* p) { return {_mm512_set1_epi32(FourBytes(p))}; }
LOCKSTEP_INLINE I32x16 Dot4(I32x16 acc, U8x64 u, I8x4 a) {
  return I32x16(_mm512_dpbusd_epi32(acc.v, u.v, a.v));
}
LOCKSTEP_INLINE I32x16 Dot4BiasedStart(int32_t sum) { return I32x16(-128 * sum); }
LOCKSTEP_INLINE I32x16 Dot4Biased(I32x16 acc, U8x64 w, I8x4 a) { return Dot4(acc, w, a); }

}  // namespace lockstep::avx512
