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
//   - segment sums meet in the left-complete binary tree over their index (formats/segment_tree.h);
//     who owns a contiguous run of segments gives the roots of the whole subtrees inside it.
// Integer products are exact, so how a kernel orders them inside a group is free.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/packing.h"
#include "formats/segment_tree.h"

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

  // Bytes that `rows` rows of padded width k take in one piece, and those rows in a piece on a cache line.
  static int64_t Bytes(int64_t rows, int64_t k);
  static QuantizedRows At(std::byte* piece, int64_t rows, int64_t k);
  // Row `to` becomes row `from` of another of the same width.
  void CopyRow(int64_t to, const QuantizedRows& other, int64_t from) const;
};

// One piece of a multiplication: panels [panel_begin, panel_end) of the weight, all tokens.
//
// The weight may hold a contiguous run of the segments of a longer axis, and a task may sum a run
// of the weight's. y is then [root, t, n]: the roots of SubtreeRoots() of the run, ascending. By
// default the weight is the whole axis and y its one root. A run of which nothing is owned is no
// task.
struct MatMulTask {
  const PackedMatrix* w;
  QuantizedRows q;   // for quantised weights
  const float* x;    // [t, k], for float weights
  int64_t x_stride;  // floats between rows of x
  int64_t tokens;
  float* y;          // [root, t, n]
  int64_t y_stride;  // floats between rows of y
  int64_t segment;  // k in a segment, a multiple of 32 and of the weight's unit; 0: all of k is one
  int64_t panel_begin;
  int64_t panel_end;
  std::byte* scratch;  // kMatMulScratchBytes of this thread's own, 64-byte aligned
  int64_t root_stride = 0;    // floats between roots of y
  int64_t segment_begin = 0;  // the segments of this weight that are summed; 0, 0: all
  int64_t segment_end = 0;
  int64_t first_leaf = 0;  // the weight's first segment in the whole tree
  int64_t leaves = 0;      // segments of the whole tree; 0: this weight's are all
  bool apart = false;      // every segment is a root of its own, whatever the tree

  int64_t segment_length() const { return segment == 0 ? w->k : segment; }
  int64_t segments() const { return (w->k + segment_length() - 1) / segment_length(); }
  // The run with its default spelt out, counted in this weight's segments.
  LeafRange run() const {
    return segment_end == 0 ? LeafRange{0, segments()} : LeafRange{segment_begin, segment_end};
  }
  // Where the root that starts at segment `first` of the run ends, likewise.
  int64_t RootEnd(int64_t first) const {
    if (apart) return first + 1;
    return SubtreeEnd(first_leaf + first, first_leaf + run().last,
                      leaves == 0 ? segments() : leaves) -
           first_leaf;
  }
};

// Length of a segment of a summed axis of `size` whose pieces may be cut at multiples of `unit`:
// 128 where that leaves eight or more, fewer or more units where the axis is short or very long.
// Depends on the model alone, never on a plan.
int64_t SegmentLength(int64_t size, int64_t unit);

// Bytes of scratch a thread needs for any MatMulTask.
inline constexpr size_t kMatMulScratchBytes = 192 * 1024;

// Does one task; kernels are lockstep::<isa>::MatMul.
using MatMulFn = void(const MatMulTask& task);

// Defines the bits: the sum of each segment of one output of a multiplication with a weight row as
// the file stores it. A root is SegmentTree() of its leaves.
// x: one row. k: the weight's width.
std::vector<float> SegmentSums(const Format& format, const std::byte* row, int64_t k,
                               int64_t segment, const QuantizedRows& x);
// The same for float weights. x: [k]
std::vector<float> SegmentSums(const Format& format, const std::byte* row, int64_t k,
                               int64_t segment, const float* x);

}  // namespace lockstep
