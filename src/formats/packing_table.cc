#include "formats/packing_table.h"

#include <cstring>

namespace lockstep {
namespace {

// Field offsets below are those of ggml's block structs (ggml-common.h).

uint8_t Byte(const std::byte* block, int at) { return static_cast<uint8_t>(block[at]); }

uint16_t U16(const std::byte* block, int at) {
  uint16_t value;
  std::memcpy(&value, block + at, sizeof value);
  return value;
}

void Q2KFactors(const std::byte* block, uint16_t* d, uint16_t* e, uint8_t* s, uint8_t*) {
  *d = U16(block, 80);
  *e = U16(block, 82);
  std::memcpy(s, block, 16);
}

void Q3KFactors(const std::byte* block, uint16_t* d, uint16_t*, uint8_t* s, uint8_t*) {
  *d = U16(block, 108);
  for (int g = 0; g < 16; ++g) {
    int low = Byte(block, 96 + g % 8) >> (g / 8 * 4) & 15;
    int high = Byte(block, 104 + g % 4) >> (g / 4 * 2) & 3;
    s[g] = static_cast<uint8_t>((high << 4 | low) - 32);
  }
}

// Q4_K and Q5_K share their head: d, e, and eight 6-bit pairs in 12 bytes.
void Q45KFactors(const std::byte* block, uint16_t* d, uint16_t* e, uint8_t* s, uint8_t* m) {
  *d = U16(block, 0);
  *e = U16(block, 2);
  for (int g = 0; g < 4; ++g) {
    uint8_t low = Byte(block, 4 + g), middle = Byte(block, 8 + g), high = Byte(block, 12 + g);
    s[g] = low & 63;
    m[g] = middle & 63;
    s[g + 4] = static_cast<uint8_t>((high & 15) | (low >> 6) << 4);
    m[g + 4] = static_cast<uint8_t>(high >> 4 | (middle >> 6) << 4);
  }
}

void Q6KFactors(const std::byte* block, uint16_t* d, uint16_t*, uint8_t* s, uint8_t*) {
  *d = U16(block, 208);
  std::memcpy(s, block + 192, 16);
}

void Iq4XsFactors(const std::byte* block, uint16_t* d, uint16_t*, uint8_t* s, uint8_t*) {
  *d = U16(block, 0);
  const int high = U16(block, 2);
  for (int g = 0; g < 8; ++g) {
    int low = Byte(block, 4 + g / 2) >> (g % 2 * 4) & 15;
    s[g] = static_cast<uint8_t>(((high >> (2 * g) & 3) << 4 | low) - 32);
  }
}

void Mxfp4Factors(const std::byte* block, uint16_t*, uint16_t*, uint8_t* s, uint8_t*) {
  s[0] = Byte(block, 0);
}

void Nvfp4Factors(const std::byte* block, uint16_t*, uint16_t*, uint8_t* s, uint8_t*) {
  std::memcpy(s, block, 4);
}

using enum CodeLayout;
constexpr Packing kRows[] = {
    {0, kFloat32, ScaleLayout::kNone, -1, nullptr, nullptr},           // F32
    {1, kFloat16, ScaleLayout::kNone, -1, nullptr, nullptr},           // F16
    {30, kBfloat16, ScaleLayout::kNone, -1, nullptr, nullptr},         // BF16
    {2, kBits4, ScaleLayout::kF16, 3, nullptr, nullptr},               // Q4_0
    {3, kBits4, ScaleLayout::kF16Min, -1, nullptr, nullptr},           // Q4_1
    {6, kBits5, ScaleLayout::kF16, 4, nullptr, nullptr},               // Q5_0
    {7, kBits5, ScaleLayout::kF16Min, -1, nullptr, nullptr},           // Q5_1
    {8, kBits8, ScaleLayout::kF16, 7, nullptr, nullptr},               // Q8_0
    {10, kBits2, ScaleLayout::kSuperMin4, -1, nullptr, Q2KFactors},    // Q2_K
    {11, kBits3, ScaleLayout::kSuper, 2, nullptr, Q3KFactors},         // Q3_K
    {12, kBits4, ScaleLayout::kSuperMin, -1, nullptr, Q45KFactors},    // Q4_K
    {13, kBits5, ScaleLayout::kSuperMin, -1, nullptr, Q45KFactors},    // Q5_K
    {14, kBits6, ScaleLayout::kSuper, 5, nullptr, Q6KFactors},         // Q6_K
    {20, kBits4, ScaleLayout::kF16, 7, kIq4Values, nullptr},           // IQ4_NL
    {23, kBits4, ScaleLayout::kSuper, 7, kIq4Values, Iq4XsFactors},    // IQ4_XS
    {35, kBits2, ScaleLayout::kSuperOne, 0, nullptr, nullptr},         // TQ2_0
    {39, kBits4, ScaleLayout::kE8m0, 4, kE2m1Doubled, Mxfp4Factors},   // MXFP4
    {40, kBits4, ScaleLayout::kUe4m3, 4, kE2m1Doubled, Nvfp4Factors},  // NVFP4
};

}  // namespace

std::span<const Packing> Packings() { return kRows; }

}  // namespace lockstep
