// What AVX2 and AVX-512 share: the last three levels of the reduction trees, on 8 lanes.
#pragma once

// GCC 12 takes its own _mm512_undefined_ps() for a mistake of ours (GCC bug 105593); clang lacks one of the warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace lockstep::LOCKSTEP_ISA {

LOCKSTEP_INLINE float ReduceAdd8(__m256 v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

LOCKSTEP_INLINE float ReduceMax8(__m256 v) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

LOCKSTEP_INLINE int32_t ReduceMax8(__m256i v) {
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

LOCKSTEP_INLINE int32_t ReduceAdd8(__m256i v) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

// [4] bytes as the 32-bit number that a broadcast takes.
LOCKSTEP_INLINE int32_t FourBytes(const int8_t* p) {
  int32_t bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return bytes;
}

}  // namespace lockstep::LOCKSTEP_ISA
