// Manifold-constrained hyper-connections (Xie et al. 2026): n residual streams, collapsed to one before a branch and mixed with what it gives.
//
// Weights of one token, a row of m = n (2 + n) numbers [pre: n | post: n | comb: n x n], from a row of `mixes` alike, with base b and three
// scales s:
//   pre[j]     = Sigmoid(mixes s[0] + b) + eps
//   post[j]    = 2 Sigmoid(mixes s[1] + b)
//   comb[i][j] = softmax over j of (mixes s[2] + b), then + eps; then columns and rows in turn are divided by their sums + eps: columns
//                once, and rows and columns iterations - 1 times (Sinkhorn and Knopp 1967)
// where mixes s + b is fma(mixes, s, b), a soft-max subtracts the row's largest, its e are those of simd/math.h, and sums ascend from 0.
// Streams are mixed as ops/weighted_rows.h defines:
//   collapse: y = sum over j of pre[j] x[j]
//   expand:   x'[j] = post[j] y + sum over i of comb[i][j] x[i]
#pragma once

#include <span>

#include "ops/operations.h"

namespace lockstep {

struct HyperConnections {
  int64_t streams = 0;
  float eps = 0;
  int64_t iterations = 0;  // at least 1
  bool head = false;       // `pre` alone: what collapses the streams after the last layer

  int64_t weights() const { return head ? streams : streams * (2 + streams); }
};

// One token's weights, in place of its mixes: [weights]. base: [weights], scale: [3], [1] for a head.
void HyperWeights(const HyperConnections& hyper, std::span<const float> base,
                  std::span<const float> scale, float* mixes);

// mixes [t, m], base [m], scale [3] -> [t, m]
OperationPtr MakeHyperWeights(const HyperConnections& hyper);
// streams [t, n, k], weights [t, m] -> [t, k]
OperationPtr MakeHyperCollapse(const HyperConnections& hyper);
// streams [t, n, k], weights [t, m], y [t, k] -> [t, n, k]
OperationPtr MakeHyperExpand(const HyperConnections& hyper);
// The mean of the streams: [t, n, k] -> [t, k]
OperationPtr MakeStreamMean(int64_t streams);

}  // namespace lockstep
