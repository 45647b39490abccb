#include "engine/random.h"

#include <exception>
#include <random>

namespace lockstep {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
  constexpr uint32_t kWeyl[2] = {0x9E3779B9, 0xBB67AE85};  // golden ratio, square root of 3 less 1
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    uint64_t even = kMultipliers[0] * counter[0];
    uint64_t odd = kMultipliers[1] * counter[2];
    counter = {static_cast<uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(odd),
               static_cast<uint32_t>(even >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(even)};
    key[0] += kWeyl[0];
    key[1] += kWeyl[1];
  }
  return counter;
}

double UniformDraw(uint64_t seed, int64_t position, uint32_t stream) {
  auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  uint64_t at = static_cast<uint64_t>(position);
  auto block = Philox4x32({low(at), high(at), stream, 0}, {low(seed), high(seed)});
  uint64_t bits = (static_cast<uint64_t>(block[1]) << 32) | block[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Result<uint64_t> SystemSeed() {
  try {
    std::random_device device;
    uint64_t high = device();
    return (high << 32) | device();
  } catch (const std::exception& e) {
    return Failed("seed: the system gives no random numbers: {}", Printable(e.what()));
  }
}

}  // namespace lockstep
