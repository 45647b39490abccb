#include "ops/kernels.h"

#include "base/error.h"

namespace lockstep {

#define LOCKSTEP_DECLARE(name, enumerator) \
  namespace name {                         \
  extern const Kernels kKernels;           \
  }
LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

const Kernels& KernelsFor(Isa isa) {
#define LOCKSTEP_TRY(name, enumerator) \
  if (isa == Isa::enumerator) return name::kKernels;
  LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_TRY)
#undef LOCKSTEP_TRY
  LOCKSTEP_CHECK(false, "no kernels for {}", IsaName(isa));
  return portable::kKernels;
}

}  // namespace lockstep
