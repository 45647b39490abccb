// A weighted sum of rows: y = w0 x0 + sum over j of w[j] x[j], as hyper-connections mix streams (Xie et al. 2026).
//
// Canonical order, for an element: w0 x0, or 0 where there is no x0, then by fma(w[j], x[j], .) over j ascending.
#pragma once

#include <cstdint>

namespace lockstep {

struct WeightedRows {
  const float* first;  // [d] or null
  float first_weight;
  const float* x;    // [n, d]
  int64_t x_stride;  // floats between rows
  const float* w;    // [n]
  int64_t w_stride;  // floats between weights
  int64_t n;
};

// y: [d], apart from what is read.
using MixRowsFn = void(const WeightedRows& rows, int64_t d, float* y);
MixRowsFn MixRowsReference;

}  // namespace lockstep
