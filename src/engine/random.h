// Random numbers without a generator to remember: each is a function of (seed, position, stream).
#pragma once

#include <array>
#include <cstdint>

#include "base/error.h"

namespace lockstep {

// One block of Philox4x32-10. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011; equal to the known answers of its authors' Random123 1.14.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A number in [0, 1), a multiple of 2^-53, for the token at `position` of a sequence. Draws of one
// token that must not be correlated use different streams.
double UniformDraw(uint64_t seed, int64_t position, uint32_t stream);

// A seed from the system. Failed where the system has none to give.
Result<uint64_t> SystemSeed();

}  // namespace lockstep
