// Functions of simd/simd.h that are the same combination of others on every instruction set.
#pragma once

namespace lockstep::LOCKSTEP_ISA {

// Values of 16 lanes that fit in registers; kernels choose their tiles by it.
inline constexpr int kRegisters = kIsa == Isa::kAvx512 ? 32 : kIsa == Isa::kPortable ? 4 : 8;

LOCKSTEP_INLINE F32x16 Set1(float c) { return F32x16(c); }
LOCKSTEP_INLINE F32x16 Zero() { return F32x16(0.0f); }
LOCKSTEP_INLINE I32x16 SetI32(int32_t c) { return I32x16(c); }

LOCKSTEP_INLINE F32x16 Neg(F32x16 a) { return FromBits(Xor(BitsOf(a), INT32_MIN)); }
LOCKSTEP_INLINE F32x16 Abs(F32x16 a) { return FromBits(And(BitsOf(a), INT32_MAX)); }
LOCKSTEP_INLINE bool Any(Mask16 m) { return MaskBits(m) != 0; }
LOCKSTEP_INLINE Mask16 FirstLanes(int n) { return Greater(I32x16(n), Iota()); }

LOCKSTEP_INLINE F32x16 LoadBf16(const uint16_t* p) { return FromBits(ShiftLeft<16>(LoadU16(p))); }
LOCKSTEP_INLINE void StoreBf16(uint16_t* p, F32x16 a) {
  I32x16 bits = BitsOf(a);
  I32x16 high = ShiftRightLogical<16>(bits);
  I32x16 rounded = Add(Add(bits, 0x7FFF), And(high, 1));
  StoreU16(p, Select(IsNan(a), Or(high, 0x40), ShiftRightLogical<16>(rounded)));
}

LOCKSTEP_INLINE U8x64 ShiftRight4Bytes(U8x64 a) { return ShiftRightBytes<4>(a); }

LOCKSTEP_INLINE void Prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

}  // namespace lockstep::LOCKSTEP_ISA
