// The kernels of one instruction set, gathered: dispatch happens once, here, and everything above holds this table.
//
// An operation is NAME.h (contract, sharding rule, `NameFn`, reference), NAME.cc (the reference, which defines the
// bits), NAME_kernels.cc (`lockstep::<isa>::Name` on simd/simd.h) and one row below. Kernels neither check nor throw.
#pragma once

#include "formats/gemm.h"
#include "ops/activation.h"
#include "ops/argmax.h"
#include "ops/attention.h"
#include "ops/causal_conv.h"
#include "ops/dot_gate.h"
#include "ops/elementwise.h"
#include "ops/hadamard.h"
#include "ops/index_scores.h"
#include "ops/l2_norm.h"
#include "ops/layer_norm.h"
#include "ops/linear_attention.h"
#include "ops/moe_ffn.h"
#include "ops/pool_rows.h"
#include "ops/quantize_row.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/soft_cap.h"
#include "ops/softmax.h"
#include "ops/weighted_rows.h"
#include "simd/isa.h"

namespace lockstep {

// X(member, Name): a member `NameFn* member`, filled with `lockstep::<isa>::Name`.
#define LOCKSTEP_FOR_EACH_KERNEL(X)  \
  X(rms_norm, RmsNorm)               \
  X(layer_norm, LayerNorm)           \
  X(l2_norm, L2Norm)                 \
  X(rope_halves, RopeHalves)         \
  X(rope_pairs, RopePairs)           \
  X(activate, Activate)              \
  X(activate_gated, ActivateGated)   \
  X(soft_cap, SoftCap)               \
  X(add, AddRows)                    \
  X(add_scaled, AddScaledRows)       \
  X(mul, MulRows)                    \
  X(scale, ScaleRow)                 \
  X(softmax, Softmax)                \
  X(hadamard, Hadamard)              \
  X(argmax, Argmax)                  \
  X(quantize_row, QuantizeRow)       \
  X(kv_append, KvAppend)             \
  X(pool_rows, PoolRows)             \
  X(mix_rows, MixRows)               \
  X(index_scores, IndexScores)       \
  X(attention, Attention)            \
  X(attention_spans, AttentionSpans) \
  X(attention_merge, AttentionMerge) \
  X(causal_conv, CausalConv)         \
  X(dot_rows, DotRows)               \
  X(linear_attention, LinearAttention) \
  X(fold_experts, FoldExperts)       \
  X(matmul, MatMul)                  \
  X(combine_roots, CombineRoots)

struct Kernels {
  Isa isa;
#define LOCKSTEP_MEMBER(member, Name) Name##Fn* member;
  LOCKSTEP_FOR_EACH_KERNEL(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
};

// The table of an instruction set, which must be one of AvailableIsas(). Bits never depend on the choice.
const Kernels& KernelsFor(Isa isa);

}  // namespace lockstep
