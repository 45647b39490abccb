// Sixteen f32 lanes on every instruction set, so that a kernel is written once and adds in one
// order everywhere.
//
// A kernel file (KERNELS of lockstep_layer) includes this header and writes
//     namespace lockstep::LOCKSTEP_ISA { void Kernel(...) { ... } }
// It is compiled once per instruction set. Kernel files use these functions, simd/math.h and
// builtins, and no inline functions of other headers: a linker might keep the copy that was
// compiled for a richer processor.
//
// TYPES. F32x16, I32x16: 16 lanes, implicitly made from one float or int32_t (all lanes alike).
// Mask16: one truth per lane. U8x64: 64 bytes seen as 16 lanes of 4. I8x4: the same 4 signed bytes
// for every lane.
//
// BITS. Every function gives the same bits on every instruction set, except that a NaN result is
// any NaN. Denormals count. Where a comment names a domain, the result outside it is any value.
// Pointers need no alignment.
//
//   Load(const float*) Store(float*, v)                        16 values
//   LoadPartial(p, n) StorePartial(p, v, n)                    the first n of 0..16; lanes beyond
//   read as 0 LoadInterleaved(p, &even, &odd) StoreInterleaved(...)      32 floats: lane i is p[2i]
//   and p[2i + 1] LoadI32(const int32_t*) StoreI32(int32_t*, v)              also LoadI32Partial,
//   StoreI32Partial Set1(c) Zero() SetI32(c) Iota() FirstLanes(n)              Iota: lane i is i;
//   FirstLanes: true where i < n Add Sub Mul Div Sqrt                                       IEEE
//   754, to nearest even Fma(a, b, c) = a*b + c, Fnma(a, b, c) = c - a*b            one rounding
//   Min(a, b) = a < b ? a : b, Max(a, b) = a > b ? a : b       so b where either is NaN, and for
//   zeros of two signs Neg Abs                                                    sign bit only
//   Less LessEqual Equal IsNan -> Mask16                       false where an operand is NaN (IsNan
//   apart) And Or Not (Mask16), Any(m), MaskBits(m)                   MaskBits: bit i is lane i
//   Select(m, a, b)                                            m ? a : b
//   RoundToInt(v)                                              nearest even; |v| <= 2147483520
//   ToF32(I32x16)                                              nearest even
//   BitsOf(F32x16) FromBits(I32x16)                            same bits, other type
//   ReduceAdd(v)                                               tree: lane i + lane i+8, then +4,
//   +2, +1 ReduceMax(v)                                               the same tree of Max(lower
//   lane, higher lane) I32x16: Add Sub Mul (wrapping), And Or Xor Max Min Greater Equal Select
//   ReduceMax, ReduceAdd (wrapping)
//           ShiftLeft<k> ShiftRight<k> (arithmetic) ShiftRightLogical<k>
//   LoadF16 StoreF16 LoadBf16 StoreBf16 (uint16_t*)            as tensor/half.h
//   LoadU16(const uint16_t*) StoreU16(uint16_t*, I32x16)       zero extended; values 0..65535
//   LoadI8AsI32(const int8_t*) StoreAsI8(int8_t*, I32x16)      16 values; -128..127
//
//   LoadBytes(p) StoreBytes(p, v) SetBytes(uint8_t)            64 bytes
//   AndBytes OrBytes XorBytes AddBytes SubBytes                wrapping
//   ShiftLeftBytes<k> ShiftRightBytes<k> ShiftRight4Bytes      each byte by itself, zeros shifted
//   in LoadTable16(p), Lookup16(table, index)                     table of 16 bytes; every index
//   0..15 Broadcast4(const int8_t*) -> I8x4 Dot4(acc, u, a) lane: acc + sum of 4 products u*a; u <=
//   127, a any Dot4Biased(acc, w, a)                                      lane: acc' + sum of 4
//   products (w - 128)*a; w any,
//                                                              |a| <= 127; exact once acc was
//                                                              started from
//   Dot4BiasedStart(sum)                                       `sum`: sum of all a that the
//   accumulator will meet Prefetch(p)                                                a read is near
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/inline.h"

#if defined(LOCKSTEP_ISA_avx512)
#include "simd/avx512.h"
#elif defined(LOCKSTEP_ISA_avx2)
#include "simd/avx2.h"
#elif defined(LOCKSTEP_ISA_neon)
#include "simd/neon.h"
#elif defined(LOCKSTEP_ISA_portable)
#include "simd/portable.h"
#else
#error "simd/simd.h belongs in kernel files: list this file under KERNELS of its layer"
#endif

#include "simd/derived.h"
