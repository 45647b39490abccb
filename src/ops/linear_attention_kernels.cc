#include "ops/linear_attention.h"

#include "ops/row_lanes.h"

namespace lockstep::LOCKSTEP_ISA {

LinearAttentionFn LinearAttention;

namespace {

// Vectors of columns whose sums stay in registers.
constexpr int kVectors = kRegisters >= 32 ? 4 : 2;

// One row on 16 * kV columns (kPartial: on `count` columns). s: their part of the state, rows `stride` apart.
template <int kV, bool kPartial>
LOCKSTEP_INLINE void TakeIn(const LinearAttentionTask& task, int64_t row, int64_t column, int count,
                            const float* kd, float* s, int64_t stride) {
  auto load = [count](const float* p) { return kPartial ? LoadPartial(p, count) : Load(p); };
  const float* k = task.k + row * task.k_stride;
  const float* decay = task.decay + row * task.decay_stride;
  const float* v = task.v + row * task.v_stride + column;
  F32x16 w[kV], out[kV];
#pragma GCC unroll 8
  for (int j = 0; j < kV; ++j) {
    w[j] = Zero();
    out[j] = Zero();
  }
  if (task.delta) {
    for (int64_t i = 0; i < task.dk; ++i) {
      const F32x16 ki = Set1(kd[i]);
#pragma GCC unroll 8
      for (int j = 0; j < kV; ++j) w[j] = Fma(load(s + i * stride + 16 * j), ki, w[j]);
    }
  }
  const F32x16 beta = Set1(task.beta[row * task.beta_stride]);
#pragma GCC unroll 8
  for (int j = 0; j < kV; ++j) {
    const F32x16 u = load(v + 16 * j);
    w[j] = Mul(task.delta ? Sub(u, w[j]) : u, beta);
  }
  const float* q = task.q != nullptr ? task.q + row * task.q_stride : nullptr;
  const int64_t decay_step = task.decays == 1 ? 0 : 1;
  for (int64_t i = 0; i < task.dk; ++i) {
    const F32x16 ki = Set1(k[i]), di = Set1(decay[i * decay_step]);
    const F32x16 qi = q != nullptr ? Set1(q[i]) : Zero();
#pragma GCC unroll 8
    for (int j = 0; j < kV; ++j) {
      float* at = s + i * stride + 16 * j;
      const F32x16 next = Fma(ki, w[j], Mul(load(at), di));
      if (kPartial) {
        StorePartial(at, next, count);
      } else {
        Store(at, next);
      }
      out[j] = Fma(next, qi, out[j]);
    }
  }
  if (q == nullptr) return;
  float* to = task.out + row * task.out_stride + column;
#pragma GCC unroll 8
  for (int j = 0; j < kV; ++j) {
    const F32x16 o = Mul(out[j], Set1(task.scale));
    if (kPartial) {
      StorePartial(to + 16 * j, o, count);
    } else {
      Store(to + 16 * j, o);
    }
  }
}

// kd = k decay, as the delta reads the state before it decays.
LOCKSTEP_INLINE void DecayedKey(const LinearAttentionTask& task, int64_t row, float* kd) {
  const float* k = task.k + row * task.k_stride;
  const float* decay = task.decay + row * task.decay_stride;
  ForEach16(task.dk, [&](int64_t i, int count) {
    const F32x16 d = task.decays == 1 ? Set1(decay[0]) : LoadN(decay + i, count);
    StoreN(kd + i, Mul(LoadN(k + i, count), d), count);
  });
}

// All rows on `width` columns from `column`, their state at s.
LOCKSTEP_INLINE void TakeInColumns(const LinearAttentionTask& task, int64_t column, int64_t width,
                                   float* kd, float* s, int64_t stride) {
  for (int64_t row = 0; row < task.rows; ++row) {
    if (task.delta) DecayedKey(task, row, kd);
    int64_t c = 0;
    for (; c + 16 * kVectors <= width; c += 16 * kVectors)
      TakeIn<kVectors, false>(task, row, column + c, 16, kd, s + c, stride);
    for (; c + 16 <= width; c += 16) TakeIn<1, false>(task, row, column + c, 16, kd, s + c, stride);
    if (c < width) {
      TakeIn<1, true>(task, row, column + c, static_cast<int>(width - c), kd, s + c, stride);
    }
  }
}

void CopyColumns(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                 int64_t width) {
  for (int64_t i = 0; i < rows; ++i)
    __builtin_memcpy(to + i * to_stride, from + i * from_stride,
                     static_cast<size_t>(width) * sizeof(float));
}

}  // namespace

void LinearAttention(const LinearAttentionTask& task) {
  float* tile = task.scratch;
  float* kd = tile + task.dk * kLinearAttentionTile;
  for (int64_t column = 0; column < task.dv; column += kLinearAttentionTile) {
    const int64_t left = task.dv - column,
                  width = left < kLinearAttentionTile ? left : kLinearAttentionTile;
    float* s = task.state + column;
    // Rows of a state are a power of two apart, which few cache sets hold; side by side the tile stays in the first level.
    if (task.rows < 4 || width == task.dv) {
      TakeInColumns(task, column, width, kd, s, task.dv);
      continue;
    }
    CopyColumns(s, task.dv, tile, width, task.dk, width);
    TakeInColumns(task, column, width, kd, tile, width);
    CopyColumns(tile, width, s, task.dv, task.dk, width);
  }
}

}  // namespace lockstep::LOCKSTEP_ISA
