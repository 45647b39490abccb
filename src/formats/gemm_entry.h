// The kernels of matrix multiplication and of its sums over ranks, one for each instruction set of this build.
#pragma once

#include "formats/gemm.h"
#include "simd/isa.h"

namespace lockstep {

#define LOCKSTEP_DECLARE(name, enumerator) \
  namespace name {                         \
  MatMulFn MatMul;                         \
  CombineRootsFn CombineRoots;             \
  }
LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

}  // namespace lockstep
