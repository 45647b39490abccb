// SplitMix64 (Steele, Lea, Flood 2014): numbers that look random and are the same everywhere.
#pragma once

#include <cstdint>

namespace lockstep {

// What a generator adds to its state before each draw.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;

// The draw at a state.
constexpr uint64_t SplitMix(uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

}  // namespace lockstep
