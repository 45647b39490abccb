// The list of formats: one word here and one file of that name make a format.
#pragma once

#include "formats/format.h"

// By ascending type id of GGUF.
// clang-format off
#define LOCKSTEP_FORMATS(ROW)                                                            \
  ROW(F32)    ROW(F16)    ROW(Q4_0)    ROW(Q4_1)  ROW(Q5_0)   ROW(Q5_1)  ROW(Q8_0)       \
  ROW(Q8_1)   ROW(Q2_K)   ROW(Q3_K)    ROW(Q4_K)  ROW(Q5_K)   ROW(Q6_K)  ROW(Q8_K)       \
  ROW(IQ2_XXS) ROW(IQ2_XS) ROW(IQ3_XXS) ROW(IQ1_S) ROW(IQ4_NL) ROW(IQ3_S) ROW(IQ2_S)     \
  ROW(IQ4_XS) ROW(I8)     ROW(I16)     ROW(I32)   ROW(I64)    ROW(F64)   ROW(IQ1_M)      \
  ROW(BF16)   ROW(TQ1_0)  ROW(TQ2_0)   ROW(MXFP4) ROW(NVFP4)  ROW(Q1_0)
// clang-format on

namespace lockstep {

#define LOCKSTEP_DECLARE_FORMAT(name) extern const Format kFormat##name;
LOCKSTEP_FORMATS(LOCKSTEP_DECLARE_FORMAT)
#undef LOCKSTEP_DECLARE_FORMAT

}  // namespace lockstep
