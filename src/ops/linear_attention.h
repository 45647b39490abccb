// Attention whose past is a matrix: gated delta rule (Yang, Kautz, Hatamizadeh 2024), its form with a decay for each key channel (Kimi
// Delta Attention), and without the delta the state space of Mamba-2 (Dao, Gu 2024; q = C, k = B, v = x, beta = dt, decay = exp(dt A)).
//
// Per head with state S [dk, dv], token by token:
//   u = v                            without delta
//   u = v - (decay S)^T k            with delta
//   S = decay S + k (beta u)^T
//   out = scale S^T q
// Canonical order, for each column c of dv, i over dk ascending:
//   m = fma(S[i, c], k[i] decay[i], m) from 0; u = v[c] - m; w = u beta
//   S[i, c] = fma(k[i], w, S[i, c] decay[i]); o = fma(S[i, c], q[i], o) from 0; out = o scale
// Several heads of v may share one head of q and k: head h of v has head h / per_key of q and k, or h mod heads of q where heads are tiled.
#pragma once

#include <cstdint>

namespace lockstep {

// Rows of one head; strides in floats from row to row. q may be null: the state is taken on without results.
struct LinearAttentionTask {
  int64_t dk, dv;
  bool delta;
  int64_t decays;  // numbers of decay in a row: 1, or dk
  float scale;
  const float* q;      // [dk]
  const float* k;      // [dk]
  const float* v;      // [dv]
  const float* decay;  // [decays]
  const float* beta;   // [1]
  float* out;          // [dv]
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride, out_stride;
  int64_t rows;
  float* state;    // [dk, dv]
  float* scratch;  // LinearAttentionScratch(dk) floats
};

// Of dk and of dv.
inline constexpr int64_t kMostStateWidth = 1024;

// Columns that the kernels keep at hand over the rows of a task.
inline constexpr int64_t kLinearAttentionTile = 64;
constexpr int64_t LinearAttentionScratch(int64_t dk) { return dk * (kLinearAttentionTile + 1); }

using LinearAttentionFn = void(const LinearAttentionTask& task);
LinearAttentionFn LinearAttentionReference;

}  // namespace lockstep
