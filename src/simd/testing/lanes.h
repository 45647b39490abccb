// Every function of simd/simd.h and simd/math.h as a function from arrays to an array, for each instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "simd/isa.h"

namespace lockstep::testing {

// What a function reads or writes: 16 lanes, 64 bytes, or the two halves of an interleaved run.
union Block {
  float f[32];
  int32_t i[32];
  uint16_t h[64];
  int8_t s[128];
  uint8_t u[128];
};

struct LaneFunction {
  const char* name;
  // Operands that a function lacks are ignored. What it does not write is left alone.
  void (*run)(const Block& a, const Block& b, const Block& c, Block& out);
};

struct LaneFunctions {
  Isa isa;
  std::span<const LaneFunction> all;
};

// The functions as compiled for an instruction set of this build.
LaneFunctions LaneFunctionsFor(Isa isa);

}  // namespace lockstep::testing
