// Codecs: how a kernel takes a panel's codes and scales out of their packing. Included by kernel files only, once per
// instruction set.
//
// A code reader gives the stored codes of one k-group of 16 rows; a scale reader gives the scales and mins of a group in 16
// lanes; a codec pairs them and says how stored codes become integers.
#pragma once

#include <cstring>

#include "formats/packing_table.h"
#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {

// Every code reader: `kBytes` of a 32-block, Load<g>(block) for group g in 0..7.
struct Codes4 {
  static constexpr int kBytes = 256;
  template <int g>
  static U8x64 Load(const std::byte* block) {
    U8x64 pair = LoadBytes(block + 64 * (g & 3));
    return AndBytes(g < 4 ? pair : ShiftRightBytes<4>(pair), SetBytes(15));
  }
};

struct Codes2 {
  static constexpr int kBytes = 128;
  template <int g>
  static U8x64 Load(const std::byte* block) {
    U8x64 four = LoadBytes(block + 64 * (g >> 2));
    return AndBytes(ShiftRightBytes<2 * (g & 3)>(four), SetBytes(3));
  }
};

// Every byte shifted left by `k` bits, right where k is negative.
template <int k>
inline U8x64 MoveBits(U8x64 a) {
  if constexpr (k > 0) return ShiftLeftBytes<k>(a);
  if constexpr (k < 0) return ShiftRightBytes<-k>(a);
  return a;
}

// Bit g of each byte of `plane`, moved to bit `to`.
template <int g, int to>
inline U8x64 PlaneBit(const std::byte* plane) {
  return AndBytes(MoveBits<to - g>(LoadBytes(plane)), SetBytes(static_cast<uint8_t>(1 << to)));
}

struct Codes3 {
  static constexpr int kBytes = 192;
  template <int g>
  static U8x64 Load(const std::byte* block) {
    return OrBytes(Codes2::Load<g>(block), PlaneBit<g, 2>(block + 128));
  }
};

struct Codes5 {
  static constexpr int kBytes = 320;
  template <int g>
  static U8x64 Load(const std::byte* block) {
    return OrBytes(Codes4::Load<g>(block), PlaneBit<g, 4>(block + 256));
  }
};

struct Codes6 {
  static constexpr int kBytes = 384;
  template <int g>
  static U8x64 Load(const std::byte* block) {
    U8x64 four = LoadBytes(block + 256 + 64 * (g >> 2));
    return OrBytes(Codes4::Load<g>(block), AndBytes(MoveBits<4 - 2 * (g & 3)>(four), SetBytes(0x30)));
  }
};

struct Codes8 {
  static constexpr int kBytes = 512;
  template <int g>
  static U8x64 Load(const std::byte* block) { return LoadBytes(block + 64 * g); }
};

// 4-bit indices into a table of 16 values, which are stored with `kAdd` added.
template <const int8_t* kTable, int kAdd>
struct CodesTable {
  static constexpr int kBytes = 256;
  struct Values {
    uint8_t at[16];
  };
  static constexpr Values kValues = [] {
    Values v{};
    for (int i = 0; i < 16; ++i) v.at[i] = static_cast<uint8_t>(kTable[i] + kAdd);
    return v;
  }();
  template <int g>
  static U8x64 Load(const std::byte* block) { return Lookup16(LoadTable16(kValues.at), Codes4::Load<g>(block)); }
};

// Scales and mins of one group of 16 rows.
struct GroupScale {
  F32x16 scale;
  F32x16 min;
};

inline const uint16_t* Halves(const std::byte* at) { return reinterpret_cast<const uint16_t*>(at); }
inline const int8_t* Signed(const std::byte* at) { return reinterpret_cast<const int8_t*>(at); }

// Every scale reader: `kUnit` k in a unit, `kGroup`, `kHasMin`, `kBytes` at the head of a unit, and Load(unit, group).
struct ScalesF16 {
  static constexpr int kUnit = 32, kGroup = 32, kBytes = 32;
  static constexpr bool kHasMin = false;
  static GroupScale Load(const std::byte* unit, int) { return {LoadF16(Halves(unit)), Zero()}; }
};

struct ScalesF16Min {
  static constexpr int kUnit = 32, kGroup = 32, kBytes = 64;
  static constexpr bool kHasMin = true;
  static GroupScale Load(const std::byte* unit, int) {
    return {LoadF16(Halves(unit)), LoadF16(Halves(unit + 32))};
  }
};

struct ScalesE8m0 {
  static constexpr int kUnit = 32, kGroup = 32, kBytes = 16;
  static constexpr bool kHasMin = false;
  // Half of 2^(e - 127); for e below 2 the result is an f32 denormal.
  static GroupScale Load(const std::byte* unit, int) {
    float scale[16];
    for (int lane = 0; lane < 16; ++lane) {
      const uint32_t e = static_cast<uint8_t>(unit[lane]);
      const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
      std::memcpy(&scale[lane], &bits, 4);
    }
    return {lockstep::LOCKSTEP_ISA::Load(scale), Zero()};
  }
};

struct ScalesUe4m3 {
  static constexpr int kUnit = 64, kGroup = 16, kBytes = 64;
  static constexpr bool kHasMin = false;
  // Sign-less 4-bit exponent, 3-bit mantissa: shifted to f32's places, the exponent bias is made up by a power of two.
  static GroupScale Load(const std::byte* unit, int group) {
    float scale[16];
    for (int lane = 0; lane < 16; ++lane) {
      const uint32_t e = static_cast<uint8_t>(unit[16 * group + lane]);
      const uint32_t bits = (e & 0x7F) == 0x7F ? 0 : (e & 0x7F) << 20;
      float value;
      std::memcpy(&value, &bits, 4);
      scale[lane] = value * 0x1p119f;
    }
    return {lockstep::LOCKSTEP_ISA::Load(scale), Zero()};
  }
};

template <int kGroupSize>
struct ScalesSuper {
  static constexpr int kUnit = 256, kGroup = kGroupSize, kBytes = 32 + 256 / kGroup * 16;
  static constexpr bool kHasMin = false;
  static GroupScale Load(const std::byte* unit, int group) {
    F32x16 d = LoadF16(Halves(unit));
    return {Mul(d, ToF32(LoadI8AsI32(Signed(unit + 32 + 16 * group)))), Zero()};
  }
};

struct ScalesSuperMin {
  static constexpr int kUnit = 256, kGroup = 32, kBytes = 64 + 8 * 32;
  static constexpr bool kHasMin = true;
  // The 6-bit factors are positive as signed bytes too.
  static GroupScale Load(const std::byte* unit, int group) {
    const std::byte* at = unit + 64 + 32 * group;
    return {Mul(LoadF16(Halves(unit)), ToF32(LoadI8AsI32(Signed(at)))),
            Neg(Mul(LoadF16(Halves(unit + 32)), ToF32(LoadI8AsI32(Signed(at + 16)))))};
  }
};

struct ScalesSuperMin4 {
  static constexpr int kUnit = 256, kGroup = 16, kBytes = 64 + 16 * 16;
  static constexpr bool kHasMin = true;
  static GroupScale Load(const std::byte* unit, int group) {
    I32x16 both = LoadI8AsI32(Signed(unit + 64 + 16 * group));
    F32x16 s = ToF32(And(both, 15));
    F32x16 m = ToF32(And(ShiftRight<4>(both), 15));
    return {Mul(LoadF16(Halves(unit)), s), Neg(Mul(LoadF16(Halves(unit + 32)), m))};
  }
};

struct ScalesSuperOne {
  static constexpr int kUnit = 256, kGroup = 32, kBytes = 32;
  static constexpr bool kHasMin = false;
  static GroupScale Load(const std::byte* unit, int) { return {LoadF16(Halves(unit)), Zero()}; }
};

// kBiasLog2: a stored code u is the integer u - 2^kBiasLog2; -1: u itself; 7: the biased product of simd.h.
template <class CodesT, class ScalesT, int kBiasLog2>
struct Codec {
  using Codes = CodesT;
  using Scales = ScalesT;
  static constexpr int kBias = kBiasLog2;
  static constexpr int kUnitBytes = Scales::kBytes + Scales::kUnit / 32 * Codes::kBytes;
};

}  // namespace lockstep::LOCKSTEP_ISA
