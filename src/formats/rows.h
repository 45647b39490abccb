// The list of formats: one word here and one file of that name make a format.
#pragma once

#include "formats/format.h"

// By ascending type id of GGUF.
#define LOCKSTEP_FORMATS(ROW)                                                                    \
  ROW(F32)                                                                                       \
  ROW(F16) ROW(Q4_0) ROW(Q4_1) ROW(Q8_0) ROW(Q4_K) ROW(Q5_K) ROW(Q6_K) ROW(I8) ROW(I16) ROW(I32) \
      ROW(I64) ROW(F64) ROW(BF16)

namespace lockstep {

#define LOCKSTEP_DECLARE_FORMAT(name) extern const Format kFormat##name;
LOCKSTEP_FORMATS(LOCKSTEP_DECLARE_FORMAT)
#undef LOCKSTEP_DECLARE_FORMAT

}  // namespace lockstep
