// Plain C++: an array of 16 a value, each function a loop that a compiler may vectorise. Contracts:
// simd/simd.h.
#pragma once

#include "simd/isa.h"
#include "tensor/half.h"

namespace lockstep::portable {

inline constexpr Isa kIsa = Isa::kPortable;

struct F32x16 {
  F32x16() = default;
  LOCKSTEP_INLINE F32x16(float c) {  // NOLINT: implicit by design
    for (float& x : v) x = c;
  }
  float v[16];
};
struct I32x16 {
  I32x16() = default;
  LOCKSTEP_INLINE I32x16(int32_t c) {  // NOLINT: implicit by design
    for (int32_t& x : v) x = c;
  }
  int32_t v[16];
};
struct Mask16 {
  int32_t v[16];  // 0 or -1: as wide as what it selects
};
struct U8x64 {
  uint8_t v[64];
};
struct I8x4 {
  int8_t v[4];
};

// out[i] = f(a[i], ...) for every element of an R.
template <typename R, typename F, typename... V>
LOCKSTEP_INLINE R Map(F f, const V&... a) {
  R out;
  for (size_t i = 0; i < sizeof(out.v) / sizeof(out.v[0]); ++i) out.v[i] = f(a.v[i]...);
  return out;
}
// The same where the result is a truth.
template <typename F, typename V>
LOCKSTEP_INLINE Mask16 Compare(F f, const V& a, const V& b) {
  return Map<Mask16>([f](auto x, auto y) { return f(x, y) ? -1 : 0; }, a, b);
}
// Arithmetic that wraps.
LOCKSTEP_INLINE uint32_t U(int32_t x) { return static_cast<uint32_t>(x); }
LOCKSTEP_INLINE int32_t S(uint32_t x) { return static_cast<int32_t>(x); }

template <typename R, typename T>
LOCKSTEP_INLINE R LoadAs(const T* p, int n) {
  R out{};
  for (int i = 0; i < n; ++i) out.v[i] = p[i];
  return out;
}
LOCKSTEP_INLINE F32x16 Load(const float* p) { return LoadAs<F32x16>(p, 16); }
LOCKSTEP_INLINE F32x16 LoadPartial(const float* p, int n) { return LoadAs<F32x16>(p, n); }
LOCKSTEP_INLINE void StorePartial(float* p, const F32x16& a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
LOCKSTEP_INLINE void Store(float* p, const F32x16& a) { StorePartial(p, a, 16); }
LOCKSTEP_INLINE I32x16 LoadI32(const int32_t* p) { return LoadAs<I32x16>(p, 16); }
LOCKSTEP_INLINE I32x16 LoadI32Partial(const int32_t* p, int n) { return LoadAs<I32x16>(p, n); }
LOCKSTEP_INLINE void StoreI32Partial(int32_t* p, const I32x16& a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
LOCKSTEP_INLINE void StoreI32(int32_t* p, const I32x16& a) { StoreI32Partial(p, a, 16); }

LOCKSTEP_INLINE void LoadInterleaved(const float* p, F32x16* even, F32x16* odd) {
  for (int i = 0; i < 16; ++i) {
    even->v[i] = p[2 * i];
    odd->v[i] = p[2 * i + 1];
  }
}
LOCKSTEP_INLINE void StoreInterleaved(float* p, const F32x16& even, const F32x16& odd) {
  for (int i = 0; i < 16; ++i) {
    p[2 * i] = even.v[i];
    p[2 * i + 1] = odd.v[i];
  }
}
LOCKSTEP_INLINE I32x16 Iota() {
  I32x16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = i;
  return out;
}

LOCKSTEP_INLINE F32x16 Add(const F32x16& a, const F32x16& b) {
  return Map<F32x16>([](float x, float y) { return x + y; }, a, b);
}
LOCKSTEP_INLINE F32x16 Sub(const F32x16& a, const F32x16& b) {
  return Map<F32x16>([](float x, float y) { return x - y; }, a, b);
}
LOCKSTEP_INLINE F32x16 Mul(const F32x16& a, const F32x16& b) {
  return Map<F32x16>([](float x, float y) { return x * y; }, a, b);
}
LOCKSTEP_INLINE F32x16 Div(const F32x16& a, const F32x16& b) {
  return Map<F32x16>([](float x, float y) { return x / y; }, a, b);
}
LOCKSTEP_INLINE F32x16 Sqrt(const F32x16& a) {
  return Map<F32x16>([](float x) { return __builtin_sqrtf(x); }, a);
}
LOCKSTEP_INLINE F32x16 Fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return Map<F32x16>([](float x, float y, float z) { return __builtin_fmaf(x, y, z); }, a, b, c);
}
LOCKSTEP_INLINE F32x16 Fnma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return Map<F32x16>([](float x, float y, float z) { return __builtin_fmaf(-x, y, z); }, a, b, c);
}
LOCKSTEP_INLINE F32x16 Min(const F32x16& a, const F32x16& b) {
  return Map<F32x16>([](float x, float y) { return x < y ? x : y; }, a, b);
}
LOCKSTEP_INLINE F32x16 Max(const F32x16& a, const F32x16& b) {
  return Map<F32x16>([](float x, float y) { return x > y ? x : y; }, a, b);
}

LOCKSTEP_INLINE Mask16 Less(const F32x16& a, const F32x16& b) {
  return Compare([](float x, float y) { return x < y; }, a, b);
}
LOCKSTEP_INLINE Mask16 LessEqual(const F32x16& a, const F32x16& b) {
  return Compare([](float x, float y) { return x <= y; }, a, b);
}
LOCKSTEP_INLINE Mask16 Equal(const F32x16& a, const F32x16& b) {
  return Compare([](float x, float y) { return x == y; }, a, b);
}
LOCKSTEP_INLINE Mask16 IsNan(const F32x16& a) {
  return Compare([](float x, float y) { return x != y; }, a, a);
}
LOCKSTEP_INLINE Mask16 And(const Mask16& a, const Mask16& b) {
  return Map<Mask16>([](int32_t x, int32_t y) { return x & y; }, a, b);
}
LOCKSTEP_INLINE Mask16 Or(const Mask16& a, const Mask16& b) {
  return Map<Mask16>([](int32_t x, int32_t y) { return x | y; }, a, b);
}
LOCKSTEP_INLINE Mask16 Not(const Mask16& a) {
  return Map<Mask16>([](int32_t x) { return ~x; }, a);
}
LOCKSTEP_INLINE uint32_t MaskBits(const Mask16& m) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= (U(m.v[i]) & 1) << i;
  return bits;
}
LOCKSTEP_INLINE F32x16 Select(const Mask16& m, const F32x16& a, const F32x16& b) {
  return Map<F32x16>([](int32_t take, float x, float y) { return take ? x : y; }, m, a, b);
}
LOCKSTEP_INLINE I32x16 Select(const Mask16& m, const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t take, int32_t x, int32_t y) { return take ? x : y; }, m, a, b);
}

// Beyond 2^22 a float's last bit is worth a half or more and adding 1.5 * 2^23 no longer rounds it
// to an integer.
LOCKSTEP_INLINE int32_t RoundLane(float x) {
  if (x > -0x1p22f && x < 0x1p22f) return static_cast<int32_t>((x + 0x1.8p23f) - 0x1.8p23f);
  if (!(x >= -0x1p31f && x < 0x1p31f)) return INT32_MIN;
  int32_t whole = static_cast<int32_t>(x);
  float rest = x - static_cast<float>(whole);
  if (rest == 0.5f || rest == -0.5f) return whole + (whole & 1) * (rest > 0 ? 1 : -1);
  return whole;
}
LOCKSTEP_INLINE I32x16 RoundToInt(const F32x16& a) {
  return Map<I32x16>([](float x) { return RoundLane(x); }, a);
}
LOCKSTEP_INLINE F32x16 ToF32(const I32x16& a) {
  return Map<F32x16>([](int32_t x) { return static_cast<float>(x); }, a);
}
LOCKSTEP_INLINE I32x16 BitsOf(const F32x16& a) {
  return Map<I32x16>([](float x) { return __builtin_bit_cast(int32_t, x); }, a);
}
LOCKSTEP_INLINE F32x16 FromBits(const I32x16& a) {
  return Map<F32x16>([](int32_t x) { return __builtin_bit_cast(float, x); }, a);
}

LOCKSTEP_INLINE I32x16 Add(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return S(U(x) + U(y)); }, a, b);
}
LOCKSTEP_INLINE I32x16 Sub(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return S(U(x) - U(y)); }, a, b);
}
LOCKSTEP_INLINE I32x16 Mul(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return S(U(x) * U(y)); }, a, b);
}
LOCKSTEP_INLINE I32x16 And(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return x & y; }, a, b);
}
LOCKSTEP_INLINE I32x16 Or(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return x | y; }, a, b);
}
LOCKSTEP_INLINE I32x16 Xor(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return x ^ y; }, a, b);
}
LOCKSTEP_INLINE I32x16 Max(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return x > y ? x : y; }, a, b);
}
LOCKSTEP_INLINE I32x16 Min(const I32x16& a, const I32x16& b) {
  return Map<I32x16>([](int32_t x, int32_t y) { return x < y ? x : y; }, a, b);
}
LOCKSTEP_INLINE Mask16 Greater(const I32x16& a, const I32x16& b) {
  return Compare([](int32_t x, int32_t y) { return x > y; }, a, b);
}
LOCKSTEP_INLINE Mask16 Equal(const I32x16& a, const I32x16& b) {
  return Compare([](int32_t x, int32_t y) { return x == y; }, a, b);
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftLeft(const I32x16& a) {
  return Map<I32x16>([](int32_t x) { return S(U(x) << k); }, a);
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRight(const I32x16& a) {
  return Map<I32x16>([](int32_t x) { return x >> k; }, a);
}
template <int k>
LOCKSTEP_INLINE I32x16 ShiftRightLogical(const I32x16& a) {
  return Map<I32x16>([](int32_t x) { return S(U(x) >> k); }, a);
}

// The tree of simd.h over any of the two-operand functions.
template <typename T, typename V, typename F>
LOCKSTEP_INLINE T Reduce(V a, F f) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] = f(a.v[i], a.v[i + width]);
  }
  return a.v[0];
}
LOCKSTEP_INLINE float ReduceAdd(const F32x16& a) {
  return Reduce<float>(a, [](float x, float y) { return x + y; });
}
LOCKSTEP_INLINE float ReduceMax(const F32x16& a) {
  return Reduce<float>(a, [](float x, float y) { return x > y ? x : y; });
}
LOCKSTEP_INLINE int32_t ReduceAdd(const I32x16& a) {
  return Reduce<int32_t>(a, [](int32_t x, int32_t y) { return S(U(x) + U(y)); });
}
LOCKSTEP_INLINE int32_t ReduceMax(const I32x16& a) {
  return Reduce<int32_t>(a, [](int32_t x, int32_t y) { return x > y ? x : y; });
}

LOCKSTEP_INLINE F32x16 LoadF16(const uint16_t* p) {
  F32x16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = F16ToF32(p[i]);
  return out;
}
LOCKSTEP_INLINE void StoreF16(uint16_t* p, const F32x16& a) {
  for (int i = 0; i < 16; ++i) p[i] = F32ToF16(a.v[i]);
}
LOCKSTEP_INLINE I32x16 LoadU16(const uint16_t* p) { return LoadAs<I32x16>(p, 16); }
LOCKSTEP_INLINE void StoreU16(uint16_t* p, const I32x16& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<uint16_t>(a.v[i]);
}
LOCKSTEP_INLINE I32x16 LoadI8AsI32(const int8_t* p) { return LoadAs<I32x16>(p, 16); }
LOCKSTEP_INLINE void StoreAsI8(int8_t* p, const I32x16& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}

LOCKSTEP_INLINE U8x64 LoadBytes(const void* p) {
  U8x64 out;
  __builtin_memcpy(out.v, p, sizeof(out.v));
  return out;
}
LOCKSTEP_INLINE void StoreBytes(void* p, const U8x64& a) { __builtin_memcpy(p, a.v, sizeof(a.v)); }
LOCKSTEP_INLINE U8x64 SetBytes(uint8_t c) {
  U8x64 out;
  __builtin_memset(out.v, c, sizeof(out.v));
  return out;
}
LOCKSTEP_INLINE uint8_t B(int x) { return static_cast<uint8_t>(x); }
LOCKSTEP_INLINE U8x64 AndBytes(const U8x64& a, const U8x64& b) {
  return Map<U8x64>([](int x, int y) { return B(x & y); }, a, b);
}
LOCKSTEP_INLINE U8x64 OrBytes(const U8x64& a, const U8x64& b) {
  return Map<U8x64>([](int x, int y) { return B(x | y); }, a, b);
}
LOCKSTEP_INLINE U8x64 XorBytes(const U8x64& a, const U8x64& b) {
  return Map<U8x64>([](int x, int y) { return B(x ^ y); }, a, b);
}
LOCKSTEP_INLINE U8x64 AddBytes(const U8x64& a, const U8x64& b) {
  return Map<U8x64>([](int x, int y) { return B(x + y); }, a, b);
}
LOCKSTEP_INLINE U8x64 SubBytes(const U8x64& a, const U8x64& b) {
  return Map<U8x64>([](int x, int y) { return B(x - y); }, a, b);
}
template <int k>
LOCKSTEP_INLINE U8x64 ShiftLeftBytes(const U8x64& a) {
  return Map<U8x64>([](int x) { return B(x << k); }, a);
}
template <int k>
LOCKSTEP_INLINE U8x64 ShiftRightBytes(const U8x64& a) {
  return Map<U8x64>([](int x) { return B(x >> k); }, a);
}
LOCKSTEP_INLINE U8x64 LoadTable16(const void* p) {
  U8x64 out;
  for (int i = 0; i < 64; i += 16) __builtin_memcpy(out.v + i, p, 16);
  return out;
}
LOCKSTEP_INLINE U8x64 Lookup16(const U8x64& table, const U8x64& index) {
  return Map<U8x64>([&table](uint8_t i) { return table.v[i & 15]; }, index);
}

LOCKSTEP_INLINE I8x4 Broadcast4(const int8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
LOCKSTEP_INLINE I32x16 Dot4(const I32x16& acc, const U8x64& u, const I8x4& a) {
  I32x16 out = acc;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) out.v[i] = S(U(out.v[i]) + U(u.v[4 * i + j] * a.v[j]));
  }
  return out;
}
LOCKSTEP_INLINE I32x16 Dot4BiasedStart(int32_t) { return I32x16(0); }
LOCKSTEP_INLINE I32x16 Dot4Biased(const I32x16& acc, const U8x64& w, const I8x4& a) {
  I32x16 out = acc;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 4; ++j) out.v[i] = S(U(out.v[i]) + U((w.v[4 * i + j] - 128) * a.v[j]));
  }
  return out;
}

}  // namespace lockstep::portable
