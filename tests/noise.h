// Numbers for weights that need not be stored: functions of a name and a place.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/split_mix.h"

namespace lockstep::test {

// The 64-bit FNV-1a hash of a name, from a start that is the seed.
constexpr uint64_t NameHash(std::string_view name, uint64_t seed) {
  for (char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return seed;
}

// A number from -1 to 1: the draw `place` (from 1 on) of the generator that starts at `seed`.
constexpr double Noise(uint64_t seed, uint64_t place) {
  return static_cast<double>(SplitMix(seed + place * kSplitMixStep) >> 11) * 0x1p-52 - 1;
}

}  // namespace lockstep::test
