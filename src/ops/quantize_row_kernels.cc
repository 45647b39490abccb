#include "ops/quantize_row.h"

#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

QuantizeRowFn QuantizeRow;

namespace {

constexpr int32_t kInfBits = 0x7F800000;

// A block with an element that is not finite is all zeros; so is one of zeros.
LOCKSTEP_INLINE bool QuantizeBlock(F32x16 low, F32x16 high, int64_t block, const QuantizedRow& out) {
  int32_t max_bits = ReduceMax(Max(BitsOf(Abs(low)), BitsOf(Abs(high))));
  float amax = __builtin_bit_cast(float, max_bits);
  bool finite = max_bits < kInfBits;
  if (!finite || max_bits == 0) [[unlikely]] {
    low = high = 0.0f;
    amax = 0;
  }
  bool small = amax < 0x1p-96f;
  float up = small ? 0x1p96f : 1, down = small ? 0x1p-96f : 1;
  float inverse = amax == 0 ? 0 : 127 / (amax * up);
  const float scale = amax * up / 127 * down;
  out.scales[block] = scale;
  I32x16 low_codes = RoundToInt(Mul(Mul(low, up), inverse));
  I32x16 high_codes = RoundToInt(Mul(Mul(high, up), inverse));
  StoreAsI8(out.codes + block * kQuantizeBlock, low_codes);
  StoreAsI8(out.codes + block * kQuantizeBlock + 16, high_codes);
  const int32_t low_sum = ReduceAdd(low_codes), high_sum = ReduceAdd(high_codes);
  int32_t* minus_sums = out.minus_sums + 3 * block;
  minus_sums[0] = -low_sum;
  minus_sums[1] = -high_sum;
  minus_sums[2] = -(low_sum + high_sum);
  float* scaled_sums = out.scaled_sums + 3 * block;
  for (int i = 0; i < 3; ++i) scaled_sums[i] = scale * static_cast<float>(-minus_sums[i]);
  return finite;
}

LOCKSTEP_INLINE int Within16(int64_t n) { return static_cast<int>(n < 0 ? 0 : n < 16 ? n : 16); }

}  // namespace

bool QuantizeRow(const float* x, int64_t k, QuantizedRow out) {
  bool finite = true;
  int64_t blocks = k / kQuantizeBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    const float* p = x + block * kQuantizeBlock;
    finite &= QuantizeBlock(Load(p), Load(p + 16), block, out);
  }
  int64_t begin = blocks * kQuantizeBlock;
  if (begin < k) {
    F32x16 low = LoadPartial(x + begin, Within16(k - begin));
    F32x16 high = LoadPartial(x + begin + 16, Within16(k - begin - 16));
    finite &= QuantizeBlock(low, high, blocks, out);
  }
  return finite;
}

}  // namespace lockstep::LOCKSTEP_ISA
