// What checkpoints with latent attention share (DeepSeek-V2 and after): keys, and tables of tensors.
#pragma once

#include "convert/converters.h"

namespace lockstep {

// SetDecoderKeys for latent attention: ranks, widths of a head under their own names, what is cached of a position under those of a head, one KV
// head, a tenth of YaRN's mscale of all dimensions, next-token blocks.
void SetLatentKeys(const Config& config, Keys& keys);
// attention.indexer.head_count, key_length and top_k.
void SetIndexerKeys(const Config& config, Keys& keys);
// All of a model of latent attention whose every layer selects, with experts routed by sigmoid.
void SetIndexedLatentKeys(const Config& config, Keys& keys);

// self_attn.q_proj or q_a_proj, q_a_layernorm and q_b_proj; kv_a_proj_with_mqa, kv_a_layernorm; kv_b_proj as attn_k_b and attn_v_b; o_proj.
std::vector<TensorRule> LatentTensors();
// self_attn.indexer.*, in the layers that have one.
std::vector<TensorRule> IndexerTensors();
// mlp.gate, its correction of the choice, experts and shared experts of the sparse layers, feed-forward of the others, next-token blocks.
// experts: their rules, empty: one tensor each.
std::vector<TensorRule> LatentMoeTensors(const std::vector<TensorRule>& experts = {});

}  // namespace lockstep
