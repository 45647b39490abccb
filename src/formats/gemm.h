// Matrix multiplication y[t, n] = sum over k of x[t, k] W[n, k]: the contract, and the reference
// that defines its bits.
//
// Canonical order (docs/numerics.md):
//   - k is cut in *segments* of fixed length; each is summed from 0 in ascending k with one f32
//     accumulator an output:
//       quantised weights, per group of 16 or 32 weights that share a scale:
//           a = fma(scale_w * scale_x, float(sum of integer products), a)
//               for each activation block of 16 in the group
//           a = fma(min_w, sum_x, a)                                        formats with mins only
//               where sum_x = scale_x * float(sum of codes) of the one block, or of two
//               fma(scale_x1, float(sum1), scale_x0 * float(sum0))
//       float weights, per element:
//           a = fma(w, x, a)
//   - segment sums meet in the left-complete binary tree over their index (formats/segment_tree.h);
//     who owns a contiguous run of segments gives the roots of the whole subtrees inside it.
// Integer products are exact, so how a kernel orders them inside a block is free.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/packing.h"
#include "formats/segment_tree.h"

namespace lockstep {

inline constexpr int kActivationBlock = 16;  // k that share an activation scale
// Of a 32-block of k, numbers that quantised rows keep beside the codes.
inline constexpr int kBlockScales = kBlockK / kActivationBlock;
inline constexpr int kBlockSums = kBlockScales + 1;  // each activation block's, and the whole's

// Rows of activations quantised in blocks of 16 along k (ops/quantize_row.h), k padded with zeros
// to a multiple of 32.
struct QuantizedRows {
  int8_t* codes = nullptr;        // [t, stride]  -127 .. 127, the first k of each row
  float* scales = nullptr;        // [t, k/32, 2]
  int32_t* minus_sums = nullptr;  // [t, k/32, 2]  minus the sum of a block's codes
  float* scaled_sums = nullptr;   // [t, k/32, 3]  sum_x above, of each block and of the two
  int64_t k = 0;                  // padded width
  int64_t stride = 0;             // bytes between rows of codes

  int64_t blocks() const { return k / kBlockK; }
  // The rows from `token` on.
  QuantizedRows From(int64_t token) const { return Moved(token * stride, token * blocks()); }
  // The same rows from a column on, a multiple of 32; k stays the width that parts rows.
  QuantizedRows FromColumn(int64_t column) const { return Moved(column, column / kBlockK); }

  // Bytes that `rows` rows of padded width k take in one piece, and those rows in a piece on a cache line.
  static int64_t Bytes(int64_t rows, int64_t k);
  static QuantizedRows At(std::byte* piece, int64_t rows, int64_t k);
  // Row `to` becomes row `from` of another of the same width.
  void CopyRow(int64_t to, const QuantizedRows& other, int64_t from) const;

 private:
  QuantizedRows Moved(int64_t bytes, int64_t block) const {
    return {codes + bytes,
            scales + block * kBlockScales,
            minus_sums + block * kBlockScales,
            scaled_sums + block * kBlockSums,
            k,
            stride};
  }
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
  std::byte* scratch;         // kMatMulScratchBytes of this thread's own, 64-byte aligned
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
