// Matrix multiplication y[t, n] = sum over k of x[t, k] W[n, k]: the contract, and the reference
// that defines its bits.
//
// Canonical order (docs/numerics.md):
//   - k is cut in *segments* of fixed length; each is summed from 0 in ascending k with one f32
//     accumulator an output:
//       quantised weights, per group of weights that share a scale:
//           a = fma(scale_w * scale_x, float(sum of integer products), a)
//           a = fma(min_w, scale_x * float(sum of activation codes), a)     formats with mins only
//       float weights, per element:
//           a = fma(w, x, a)
//   - segment sums meet in the left-complete binary tree over their index (SegmentTree), so that
//     a rank that owns a contiguous run of segments owns whole subtrees.
// Integer products are exact, so how a kernel orders them inside a group is free.
#pragma once

#include <cstdint>
#include <span>

#include "formats/packing.h"

namespace lockstep {

// Rows of activations quantised in blocks of 32 along k, k padded with zeros to a multiple of 32.
struct QuantizedRows {
  int8_t* codes = nullptr;   // [t, stride]  -127 .. 127, the first k of each row
  float* scales = nullptr;   // [t, k/32]
  // Of the codes of the first half, the second half and the whole of each block:
  int32_t* minus_sums = nullptr;  // [t, k/32, 3]  minus their sum
  float* scaled_sums = nullptr;   // [t, k/32, 3]  scale * float(sum)
  int64_t k = 0;                  // padded width
  int64_t stride = 0;             // bytes between rows of codes

  int64_t blocks() const { return k / kBlockK; }
  // The rows from `token` on.
  QuantizedRows From(int64_t token) const {
    return {codes + token * stride, scales + token * blocks(), minus_sums + token * blocks() * 3,
            scaled_sums + token * blocks() * 3, k, stride};
  }
  // A line more than the width: rows a power of two apart would share the few places that a cache has for one address.
  static int64_t Stride(int64_t k) { return k + 64; }
};

// One piece of a multiplication: panels [panel_begin, panel_end) of the weight, all tokens.
struct MatMulTask {
  const PackedMatrix* w;
  QuantizedRows q;   // for quantised weights
  const float* x;    // [t, k], for float weights
  int64_t x_stride;  // floats between rows of x
  int64_t tokens;
  float* y;          // [t, n]
  int64_t y_stride;  // floats between rows of y
  int64_t segment;  // k in a segment, a multiple of 32 and of the weight's unit; 0: all of k is one
  int64_t panel_begin;
  int64_t panel_end;
  std::byte* scratch;  // kMatMulScratchBytes of this thread's own, 64-byte aligned
};

// Most segments a summed axis is cut into.
inline constexpr int64_t kMaxSegments = 64;
// Depth of the binary counter that folds kMaxSegments segments, one more for the running sum.
inline constexpr int kTreeLevels = 7;

// Length of a segment of a summed axis of `size` whose pieces may be cut at multiples of `unit`:
// 128 where that leaves eight or more, fewer or more units where the axis is short or very long.
// Depends on the model alone, never on a plan.
int64_t SegmentLength(int64_t size, int64_t unit);

// Bytes of scratch a thread needs for any MatMulTask.
inline constexpr size_t kMatMulScratchBytes = 192 * 1024;

// Does one task; kernels are lockstep::<isa>::MatMul.
using MatMulFn = void(const MatMulTask& task);

// Sums values[0 .. count) in the left-complete binary tree: the left half is the largest power of
// two below count.
float SegmentTree(std::span<const float> values);

// Defines the bits: y = one output of a multiplication with a weight row as the file stores it.
// x: one row. k: the weight's width.
float MatMulReference(const Format& format, const std::byte* row, int64_t k, int64_t segment,
                      const QuantizedRows& x);
// The same for float weights. x: [k]
float MatMulReference(const Format& format, const std::byte* row, int64_t k, int64_t segment,
                      const float* x);

}  // namespace lockstep
