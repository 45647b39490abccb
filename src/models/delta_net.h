// Gated delta networks (Yang, Kautz, Hatamizadeh 2024) as Qwen's hybrids have them in place of attention.
#pragma once

#include "models/parts.h"

namespace lockstep {

struct DeltaNetSpec {
  int64_t key_heads = 0, value_heads = 0;  // the latter a multiple of the former
  int64_t dk = 0, dv = 0;
  int64_t taps = 0;  // of the convolution
  bool tiled =
      false;  // the file's value heads: head h has key head h mod key_heads, instead of h / (value_heads / key_heads)
  Activation output_gate = Activation::kSilu;
};

// Sizes from the file's ssm.* keys.
DeltaNetSpec ReadDeltaNetSpec(const ModelSource& source);

// x: [t, k], normed; result [t, k]. Projections are attn_qkv and attn_gate, or ssm_in with q, k, v, z of each key head together;
// ssm_beta and ssm_alpha, or ssm_ba with those of each key head together.
ValueId BuildDeltaNet(Parts& parts, ValueId x, const DeltaNetSpec& spec);

// Kimi's delta attention (Kimi Team 2025): a decay for each number of a key, by a projection of low rank, and an output gate alike.
struct KimiDeltaSpec {
  int64_t heads = 0;
  int64_t d = 0;     // of keys and values, and rank of both gates
  int64_t taps = 0;  // of the convolutions
  float lower_bound =
      0;  // of the decay's logarithm, below 0: bound sigmoid(A y) takes the place of -A softplus(y); 0: none
};

// kda.head_count (attention.head_count without it), kda.head_dim, kda.lower_bound, ssm.conv_kernel.
KimiDeltaSpec ReadKimiDeltaSpec(const ModelSource& source);

// x: [t, k], normed; result [t, k].
ValueId BuildKimiDelta(Parts& parts, ValueId x, const KimiDeltaSpec& spec);

// Layers that are recurrent: listed in the file, else all but each `full_attention_interval`-th, 4 where the file has no such key.
std::vector<bool> ReadRecurrentLayers(const ModelSource& source, size_t layers);

}  // namespace lockstep
