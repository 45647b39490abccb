// The feed-forward of a mixture of experts (Shazeer et al. 2017; Fedus et al. 2021; DeepSeekMoE, arXiv 2401.06066) as one operation.
//
// For token t and its slot j, with expert e = ids[t, j] and weight w = weights[t, j]:
//     g = gate_e x + gate_bias_e       u = up_e x + up_bias_e       k whole, in ascending order (formats/gemm.h)
//     h = gating(g, u), or activation(u) without a gate             ops/activation.h
//     h = w h                                                       so that the sums below need no weight
//     leaf(s, j) = the sum over segment s of f of down_e h          from 0, ascending; h in activation codes where down is quantised
//     leaf(0, j) = fma(w, down_bias_e, leaf(0, j))
//     y[t] = tree over s (tree over e (leaf(s, j)))
// Where the weight is the input's (MoeSettings::weigh_input, Llama 4), g and u are multiplied by w before their biases, which is what
// multiplying x does, and w is 1 from there on.
//
// Both trees are left-complete (formats/segment_tree.h): over the segments of f, and over all experts of the model, where an expert that
// the token does not use passes its sibling through: its leaf is -0, which changes nothing it is added to. (An expert that stands in two
// slots of a token counts twice, the lower slot first.) So a rank that owns a run of segments, or a run of experts, owns whole subtrees; it
// gives their roots, and any split of either axis gives the same bits. A rank that owns some experts only gives the roots over its
// experts for each segment; -0 where a token uses none of them.
//
// The weight multiplies h and not the leaves because f numbers are fewer than n for each segment; codes have a scale a block, so it costs no
// accuracy at any magnitude.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "formats/gemm.h"
#include "ops/activation.h"

namespace lockstep {

struct MoeSettings {
  Gating gating;
  bool gated = true;         // without: h = gating.activation(u), the other fields of gating unused
  bool biases = false;       // of gate, up and down
  bool weigh_input = false;  // the weight is the input's, not the output's
};

// A run of the segments of f, as SumPart of ops/operation.h.
struct MoeSegments {
  LeafRange leaves;
  int64_t total = 0;   // segments of the model's f; 0: f is not cut
  int64_t length = 0;  // numbers of a segment
};

// The part of a model's experts that the operands hold, where a plan cuts them. y is then [p, t, n] in memory: with f cut the roots over the
// segments here; with experts cut those over the experts here for each segment, the segments outermost (`f` says then how many these are).
struct MoePart {
  LeafRange experts;
  int64_t all_experts = 0;  // of the model, 0: they are not cut
  MoeSegments f;

  bool cut() const { return f.total != 0; }
};

// x, ids, weights, gate, up, down, then the three biases; gate and its bias only where there is a gate. In the factor rule
// e cut is expert parallelism, f cut a slice of every expert; both give partial sums.
std::string MoeFfnRule(const MoeSettings& settings, bool partial);

// Length of a segment of f, which depends on the width of the whole model's f and the format of down alone.
int64_t MoeSegmentLength(const Format& down, int64_t f);

// Experts as a file stores them.
struct ExpertRows {
  const Format* format = nullptr;
  const std::byte* data = nullptr;  // [experts, rows, width]
  int64_t experts = 0, rows = 0, width = 0;
  const std::byte* Row(int64_t expert, int64_t row) const {
    return data + (expert * rows + row) * format->RowBytes(width);
  }
};
struct MoeReferenceWeights {
  ExpertRows gate, up, down;                     // [e, f, k], [e, f, k], [e, n, f]
  const float *gate_bias, *up_bias, *down_bias;  // [e, f], [e, f], [e, n], where settings have biases
};
// Defines the bits, for one token. x: [k], ids, weights: [used], y: [n]
void MoeFfnReference(const MoeSettings& settings, const MoeReferenceWeights& experts,
                     const float* x, const float* ids, const float* weights, int64_t used,
                     float* y);

inline constexpr int64_t kColumnsOfFold = 32;
// Values that wait for their siblings in the tree over kMaxLeaves experts, the running one included.
inline constexpr int kMostOpenExperts = 17;

// Leaves of a token's experts folded in their tree, kColumnsOfFold columns at a time.
struct ExpertFold {
  const float* leaves;    // [row, 32]
  const int32_t* begin;   // [t + 1]  entries of each token in the two below
  const int32_t* rows;    // by ascending expert
  const uint8_t* merges;  // after each row, how many times the two latest values become their sum
  int64_t tokens;
  float* y;  // [t, 32]  -0 for a token without entries
};
using FoldExpertsFn = void(const ExpertFold& fold);
FoldExpertsFn FoldExpertsReference;

}  // namespace lockstep
