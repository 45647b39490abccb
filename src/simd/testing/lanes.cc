#include "simd/testing/lanes.h"

namespace lockstep {

#define LOCKSTEP_DECLARE(name, isa) \
  namespace name {                  \
  testing::LaneFunctions Lanes();   \
  }
LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

namespace testing {

LaneFunctions LaneFunctionsFor(Isa isa) {
#define LOCKSTEP_TRY(name, enumerator) \
  if (isa == Isa::enumerator) return name::Lanes();
  LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_TRY)
#undef LOCKSTEP_TRY
  return {};
}

}  // namespace testing
}  // namespace lockstep
