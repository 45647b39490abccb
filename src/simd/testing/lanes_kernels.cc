#include "simd/math.h"
#include "simd/simd.h"
#include "simd/testing/lanes.h"

namespace lockstep::LOCKSTEP_ISA {

using testing::Block;

namespace {

#define LOCKSTEP_ROW(name, ...)                                                \
  {                                                                            \
    name, []([[maybe_unused]] const Block& a, [[maybe_unused]] const Block& b, \
             [[maybe_unused]] const Block& c, Block& out) { __VA_ARGS__; }     \
  }
#define LOCKSTEP_UNARY(fn) LOCKSTEP_ROW(#fn, Store(out.f, fn(Load(a.f))))
#define LOCKSTEP_BINARY(fn) LOCKSTEP_ROW(#fn, Store(out.f, fn(Load(a.f), Load(b.f))))
#define LOCKSTEP_COMPARE(fn) \
  LOCKSTEP_ROW(#fn, out.i[0] = int32_t(MaskBits(fn(Load(a.f), Load(b.f)))))
#define LOCKSTEP_INTEGER(name, fn) \
  LOCKSTEP_ROW(name, StoreI32(out.i, fn(LoadI32(a.i), LoadI32(b.i))))
#define LOCKSTEP_BYTES(fn) LOCKSTEP_ROW(#fn, StoreBytes(out.u, fn(LoadBytes(a.u), LoadBytes(b.u))))
#define LOCKSTEP_SHIFT(fn, k) LOCKSTEP_ROW(#fn #k, StoreI32(out.i, fn<k>(LoadI32(a.i))))
#define LOCKSTEP_SHIFT_BYTES(fn, k) LOCKSTEP_ROW(#fn #k, StoreBytes(out.u, fn<k>(LoadBytes(a.u))))
#define LOCKSTEP_MATH(fn) LOCKSTEP_ROW(#fn, Store(out.f, math::fn(Load(a.f))))

// The sum of all activations that the biased product's accumulator meets: here one group of 4.
int32_t SumOf4(const int8_t* p) { return p[0] + p[1] + p[2] + p[3]; }

constexpr testing::LaneFunction kFunctions[] = {
    LOCKSTEP_ROW("Load", Store(out.f, Load(a.f))),
    LOCKSTEP_ROW("LoadPartial", Store(out.f, LoadPartial(a.f, b.i[0]))),
    LOCKSTEP_ROW("StorePartial", StorePartial(out.f, Load(a.f), b.i[0])),
    LOCKSTEP_ROW("LoadI32Partial", StoreI32(out.i, LoadI32Partial(a.i, b.i[0]))),
    LOCKSTEP_ROW("StoreI32Partial", StoreI32Partial(out.i, LoadI32(a.i), b.i[0])),
    LOCKSTEP_ROW("LoadInterleaved", F32x16 even, odd; LoadInterleaved(a.f, &even, &odd);
                 Store(out.f, even); Store(out.f + 16, odd)),
    LOCKSTEP_ROW("StoreInterleaved", StoreInterleaved(out.f, Load(a.f), Load(a.f + 16))),
    LOCKSTEP_ROW("Set1", Store(out.f, Set1(a.f[0]))),
    LOCKSTEP_ROW("Zero", Store(out.f, Zero())),
    LOCKSTEP_ROW("SetI32", StoreI32(out.i, SetI32(a.i[0]))),
    LOCKSTEP_ROW("Iota", StoreI32(out.i, Iota())),
    LOCKSTEP_ROW("FirstLanes", out.i[0] = int32_t(MaskBits(FirstLanes(b.i[0])))),
    LOCKSTEP_BINARY(Add),
    LOCKSTEP_BINARY(Sub),
    LOCKSTEP_BINARY(Mul),
    LOCKSTEP_BINARY(Div),
    LOCKSTEP_UNARY(Sqrt),
    LOCKSTEP_ROW("Fma", Store(out.f, Fma(Load(a.f), Load(b.f), Load(c.f)))),
    LOCKSTEP_ROW("Fnma", Store(out.f, Fnma(Load(a.f), Load(b.f), Load(c.f)))),
    LOCKSTEP_BINARY(Min),
    LOCKSTEP_BINARY(Max),
    LOCKSTEP_UNARY(Neg),
    LOCKSTEP_UNARY(Abs),
    LOCKSTEP_COMPARE(Less),
    LOCKSTEP_COMPARE(LessEqual),
    LOCKSTEP_COMPARE(Equal),
    LOCKSTEP_ROW("IsNan", out.i[0] = int32_t(MaskBits(IsNan(Load(a.f))))),
    LOCKSTEP_ROW("MaskAnd", Mask16 x = Less(Load(a.f), Load(b.f)); Mask16 y = IsNan(Load(c.f));
                 out.i[0] = int32_t(MaskBits(And(x, y)))),
    LOCKSTEP_ROW("MaskOr", Mask16 x = Less(Load(a.f), Load(b.f)); Mask16 y = IsNan(Load(c.f));
                 out.i[0] = int32_t(MaskBits(Or(x, y)))),
    LOCKSTEP_ROW("MaskNot", out.i[0] = int32_t(MaskBits(Not(Less(Load(a.f), Load(b.f)))))),
    LOCKSTEP_ROW("Any", out.i[0] = Any(Less(Load(a.f), Load(b.f)))),
    LOCKSTEP_ROW("Select", Store(out.f, Select(Less(Load(a.f), Load(b.f)), Load(a.f), Load(c.f)))),
    LOCKSTEP_ROW("RoundToInt", StoreI32(out.i, RoundToInt(Load(a.f)))),
    LOCKSTEP_ROW("ToF32", Store(out.f, ToF32(LoadI32(a.i)))),
    LOCKSTEP_ROW("BitsOf", StoreI32(out.i, BitsOf(Load(a.f)))),
    LOCKSTEP_ROW("FromBits", Store(out.f, FromBits(LoadI32(a.i)))),
    LOCKSTEP_ROW("ReduceAdd", out.f[0] = ReduceAdd(Load(a.f))),
    LOCKSTEP_ROW("ReduceMax", out.f[0] = ReduceMax(Load(a.f))),
    LOCKSTEP_INTEGER("AddI32", Add),
    LOCKSTEP_INTEGER("SubI32", Sub),
    LOCKSTEP_INTEGER("MulI32", Mul),
    LOCKSTEP_INTEGER("AndI32", And),
    LOCKSTEP_INTEGER("OrI32", Or),
    LOCKSTEP_INTEGER("XorI32", Xor),
    LOCKSTEP_INTEGER("MaxI32", Max),
    LOCKSTEP_INTEGER("MinI32", Min),
    LOCKSTEP_ROW("GreaterI32", out.i[0] = int32_t(MaskBits(Greater(LoadI32(a.i), LoadI32(b.i))))),
    LOCKSTEP_ROW("EqualI32", out.i[0] = int32_t(MaskBits(Equal(LoadI32(a.i), LoadI32(b.i))))),
    LOCKSTEP_ROW("SelectI32", Mask16 m = Greater(LoadI32(a.i), LoadI32(b.i));
                 StoreI32(out.i, Select(m, LoadI32(a.i), LoadI32(c.i)))),
    LOCKSTEP_ROW("ReduceAddI32", out.i[0] = ReduceAdd(LoadI32(a.i))),
    LOCKSTEP_ROW("ReduceMaxI32", out.i[0] = ReduceMax(LoadI32(a.i))),
    LOCKSTEP_SHIFT(ShiftLeft, 1),
    LOCKSTEP_SHIFT(ShiftLeft, 23),
    LOCKSTEP_SHIFT(ShiftRight, 1),
    LOCKSTEP_SHIFT(ShiftRight, 31),
    LOCKSTEP_SHIFT(ShiftRightLogical, 1),
    LOCKSTEP_SHIFT(ShiftRightLogical, 31),
    LOCKSTEP_ROW("LoadF16", Store(out.f, LoadF16(a.h))),
    LOCKSTEP_ROW("StoreF16", StoreF16(out.h, Load(a.f))),
    LOCKSTEP_ROW("LoadBf16", Store(out.f, LoadBf16(a.h))),
    LOCKSTEP_ROW("StoreBf16", StoreBf16(out.h, Load(a.f))),
    LOCKSTEP_ROW("LoadU16", StoreI32(out.i, LoadU16(a.h))),
    LOCKSTEP_ROW("StoreU16", StoreU16(out.h, LoadU16(a.h))),
    LOCKSTEP_ROW("LoadI8AsI32", StoreI32(out.i, LoadI8AsI32(a.s))),
    LOCKSTEP_ROW("StoreAsI8", StoreAsI8(out.s, LoadI8AsI32(a.s))),
    LOCKSTEP_ROW("LoadBytes", StoreBytes(out.u, LoadBytes(a.u))),
    LOCKSTEP_ROW("SetBytes", StoreBytes(out.u, SetBytes(a.u[0]))),
    LOCKSTEP_BYTES(AndBytes),
    LOCKSTEP_BYTES(OrBytes),
    LOCKSTEP_BYTES(XorBytes),
    LOCKSTEP_BYTES(AddBytes),
    LOCKSTEP_BYTES(SubBytes),
    LOCKSTEP_SHIFT_BYTES(ShiftLeftBytes, 1),
    LOCKSTEP_SHIFT_BYTES(ShiftLeftBytes, 6),
    LOCKSTEP_SHIFT_BYTES(ShiftRightBytes, 1),
    LOCKSTEP_SHIFT_BYTES(ShiftRightBytes, 7),
    LOCKSTEP_ROW("ShiftRight4Bytes", StoreBytes(out.u, ShiftRight4Bytes(LoadBytes(a.u)))),
    LOCKSTEP_ROW("Lookup16", U8x64 index = AndBytes(LoadBytes(b.u), SetBytes(15));
                 StoreBytes(out.u, Lookup16(LoadTable16(a.u), index))),
    LOCKSTEP_ROW("Dot4", U8x64 u = AndBytes(LoadBytes(b.u), SetBytes(127));
                 StoreI32(out.i, Dot4(LoadI32(c.i), u, Broadcast4(a.s)))),
    LOCKSTEP_ROW("Dot4Biased", I32x16 start = Dot4BiasedStart(SumOf4(a.s)); Prefetch(b.u);
                 StoreI32(out.i, Dot4Biased(start, LoadBytes(b.u), Broadcast4(a.s)))),
    LOCKSTEP_MATH(Exp),
    LOCKSTEP_MATH(Sigmoid),
    LOCKSTEP_MATH(Tanh),
    LOCKSTEP_MATH(Silu),
    LOCKSTEP_MATH(GeluQuick),
    LOCKSTEP_MATH(GeluTanh),
    LOCKSTEP_MATH(GeluErf),
    LOCKSTEP_MATH(Softplus),
    LOCKSTEP_MATH(Relu),
    LOCKSTEP_MATH(ReluSquared),
};

}  // namespace

testing::LaneFunctions Lanes() { return {kIsa, kFunctions}; }

}  // namespace lockstep::LOCKSTEP_ISA
