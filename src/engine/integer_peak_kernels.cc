#include "engine/integer_peak_kernels.h"

#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {

int64_t IntegerProbe(const uint8_t* bytes, int64_t steps, int32_t* sink) {
  constexpr int kSums = kRegisters >= 32 ? 16 : kRegisters >= 8 ? 4 : 1;
  constexpr int64_t kProducts = 64;  // of one Dot4
  const U8x64 u = LoadBytes(bytes);
  const auto a = Broadcast4(reinterpret_cast<const int8_t*>(bytes));
  I32x16 sums[kSums];
  // Different starts: equal sums would be computed once.
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) sums[i] = SetI32(i);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = Dot4(sums[i], u, a);
  }
#pragma GCC unroll 16
  for (int i = 1; i < kSums; ++i) sums[0] = Add(sums[0], sums[i]);
  StoreI32(sink, sums[0]);
  return steps * kSums * kProducts;
}

}  // namespace lockstep::LOCKSTEP_ISA
