// The packings, one row a format. A new format that wants a quick kernel adds its row here and in
// formats/gemm_kernels.cc.
#pragma once

#include <span>

#include "formats/packing.h"

namespace lockstep {

// Values of the 4-bit codes of IQ4_NL and IQ4_XS (ggml's kvalues_iq4nl).
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of E2M1 (OCP Microscaling 1.0, section 5.3.3).
inline constexpr int8_t kE2m1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

std::span<const Packing> Packings();

}  // namespace lockstep
