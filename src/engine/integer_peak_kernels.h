// The loop of the integer probe, compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/isa.h"

namespace lockstep {

// Multiplies and adds `steps` times with as many independent sums as registers hold; returns how
// many products of bytes that were. bytes: 64 of them, below 128. sink: 16 sums, so that the work
// is not left out.
using IntegerProbeFn = int64_t(const uint8_t* bytes, int64_t steps, int32_t* sink);

#define LOCKSTEP_DECLARE(isa, enumerator) \
  namespace isa {                         \
  IntegerProbeFn IntegerProbe;            \
  }
LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

}  // namespace lockstep
