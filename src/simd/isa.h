// Instruction sets: which ones this build has, which ones this processor runs, and which one is
// used.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

// Ascending by preference on each processor family.
enum class Isa { kPortable, kAvx2, kAvx512, kNeon };

// The instruction sets that kernel files are compiled for here, as X(namespace, enumerator); the
// build's list is LOCKSTEP_ISAS_<processor> in cmake/lockstep.cmake.
#if defined(__x86_64__)
#define LOCKSTEP_FOR_EACH_ISA(X) X(portable, kPortable) X(avx2, kAvx2) X(avx512, kAvx512)
#elif defined(__aarch64__)
#define LOCKSTEP_FOR_EACH_ISA(X) X(portable, kPortable) X(neon, kNeon)
#endif

// "portable", "avx2", "avx512", "neon": the spelling of LOCKSTEP_ISA, of namespaces and of prints.
std::string_view IsaName(Isa isa);

// What this processor and its operating system run, ascending; the first is always kPortable. Found
// once.
//   avx2:   AVX2, FMA, F16C, BMI2, and YMM state saved by the system
//   avx512: the above and AVX-512 F, BW, DQ, VL, VNNI, and ZMM and mask state saved by the system
//   neon:   Armv8.2 with dot product and half precision
std::span<const Isa> AvailableIsas();

// The last of AvailableIsas(), or the one that environment variable LOCKSTEP_ISA names. Throws
// Refused, naming the possible values, where the variable is set to anything that AvailableIsas()
// does not have.
Isa BestIsa();

}  // namespace lockstep
