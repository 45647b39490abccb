#include "ops/quantize_row.h"

#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

QuantizeRowFn QuantizeRow;

namespace {

constexpr int32_t kInfBits = 0x7F800000;

// What the sums of a 32-block need from its halves.
struct HalfBlock {
  float scale;
  int32_t sum;
  bool finite;
};

// A block with an element that is not finite is all zeros; so is one of zeros. at: counted in
// activation blocks.
LOCKSTEP_INLINE HalfBlock QuantizeHalf(F32x16 x, int64_t at, const QuantizedRow& out) {
  const int32_t max_bits = ReduceMax(BitsOf(Abs(x)));
  float amax = __builtin_bit_cast(float, max_bits);
  const bool finite = max_bits < kInfBits;
  if (!finite || max_bits == 0) [[unlikely]] {
    x = 0.0f;
    amax = 0;
  }
  const bool small = amax < 0x1p-96f;
  const float up = small ? 0x1p96f : 1, down = small ? 0x1p-96f : 1;
  const float inverse = amax == 0 ? 0 : 127 / (amax * up);
  const float scale = amax * up / 127 * down;
  const I32x16 codes = RoundToInt(Mul(Mul(x, up), inverse));
  StoreAsI8(out.codes + at * kActivationBlock, codes);
  const int32_t sum = ReduceAdd(codes);
  out.scales[at] = scale;
  out.minus_sums[at] = -sum;
  return {scale, sum, finite};
}

LOCKSTEP_INLINE bool QuantizeBlock(F32x16 low, F32x16 high, int64_t block,
                                   const QuantizedRow& out) {
  const HalfBlock a = QuantizeHalf(low, block * kBlockScales, out);
  const HalfBlock b = QuantizeHalf(high, block * kBlockScales + 1, out);
  float* sums = out.scaled_sums + block * kBlockSums;
  sums[0] = a.scale * static_cast<float>(a.sum);
  sums[1] = b.scale * static_cast<float>(b.sum);
  sums[2] = __builtin_fmaf(b.scale, static_cast<float>(b.sum), sums[0]);
  return a.finite && b.finite;
}

LOCKSTEP_INLINE int Within16(int64_t n) { return static_cast<int>(n < 0 ? 0 : n < 16 ? n : 16); }

}  // namespace

bool QuantizeRow(const float* x, int64_t k, QuantizedRow out) {
  bool finite = true;
  const int64_t blocks = k / kBlockK, begin = blocks * kBlockK;
  for (int64_t block = 0; block < blocks; ++block) {
    const float* p = x + block * kBlockK;
    finite &= QuantizeBlock(Load(p), Load(p + 16), block, out);
  }
  if (begin < k) {
    const F32x16 low = LoadPartial(x + begin, Within16(k - begin));
    const F32x16 high = LoadPartial(x + begin + 16, Within16(k - begin - 16));
    finite &= QuantizeBlock(low, high, blocks, out);
  }
  return finite;
}

}  // namespace lockstep::LOCKSTEP_ISA
