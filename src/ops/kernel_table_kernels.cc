// Gathers the kernels of one instruction set (ops/kernels.h).
#include "ops/kernels.h"
#include "simd/simd.h"

namespace lockstep::LOCKSTEP_ISA {

#define LOCKSTEP_DECLARE(member, Name) Name##Fn Name;
LOCKSTEP_FOR_EACH_KERNEL(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

extern const Kernels kKernels;
constinit const Kernels kKernels = {.isa = kIsa,
#define LOCKSTEP_FILL(member, Name) .member = Name,
                                    LOCKSTEP_FOR_EACH_KERNEL(LOCKSTEP_FILL)
#undef LOCKSTEP_FILL
};

}  // namespace lockstep::LOCKSTEP_ISA
