#include "simd/isa.h"

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lockstep {

namespace {

constexpr std::string_view kNames[] = {"portable", "avx2", "avx512", "neon"};

#if defined(__x86_64__)

// XCR0: which register state the operating system saves (Intel SDM volume 1, 13.3).
uint64_t SavedState() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

std::vector<Isa> Detect() {
  std::vector<Isa> found = {Isa::kPortable};
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return found;
  constexpr uint32_t kLeaf1 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
  if ((ecx & kLeaf1) != kLeaf1) return found;
  uint64_t saved = SavedState();
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return found;

  constexpr uint64_t kYmm = 0x06;
  constexpr uint32_t kAvx2 = bit_AVX2 | bit_BMI2;
  if ((saved & kYmm) != kYmm || (ebx & kAvx2) != kAvx2) return found;
  found.push_back(Isa::kAvx2);

  constexpr uint64_t kZmm = 0xE6;
  constexpr uint32_t kAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  if ((saved & kZmm) != kZmm || (ebx & kAvx512) != kAvx512) return found;
  if (ecx & bit_AVX512VNNI) found.push_back(Isa::kAvx512);
  return found;
}

#elif defined(__aarch64__)

std::vector<Isa> Detect() {
  std::vector<Isa> found = {Isa::kPortable};
  constexpr unsigned long kNeeded = HWCAP_ASIMD | HWCAP_ASIMDHP | HWCAP_FPHP | HWCAP_ASIMDDP;
  if ((getauxval(AT_HWCAP) & kNeeded) == kNeeded) found.push_back(Isa::kNeon);
  return found;
}

#endif

}  // namespace

std::string_view IsaName(Isa isa) {
  size_t index = static_cast<size_t>(isa);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::span<const Isa> AvailableIsas() {
  static const std::vector<Isa> found = Detect();
  return found;
}

Isa BestIsa() {
  const char* wanted = std::getenv("LOCKSTEP_ISA");
  if (wanted == nullptr) return AvailableIsas().back();
  std::string possible;
  for (Isa isa : AvailableIsas()) {
    if (wanted == IsaName(isa)) return isa;
    possible += possible.empty() ? "" : ", ";
    possible += IsaName(isa);
  }
  throw Refused("LOCKSTEP_ISA: expected one of {}, found '{}'", possible, Printable(wanted));
}

}  // namespace lockstep
