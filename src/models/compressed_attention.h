// Attention over a window of positions and over keys that each stand for a pool of them (DeepSeek-V4, DeepSeek-AI 2026, section 2.3) as a piece
// of a layer: queries and the one key, which is its value too, with rope at the end of a head; what is seen is turned back by the
// rope before it leaves, group by group.
#pragma once

#include "models/latent_attention.h"

namespace lockstep {

struct CompressedAttentionSpec {
  LatentAttentionSpec latent;  // heads, q_rank, rope
  int64_t d = 0;               // width of a head; K is V
  int64_t window = 0;
  int64_t pool = 0;  // positions of a compressed key, 0: none
  bool overlap = false;
  IndexerSpec indexer;  // no heads: all compressed keys are seen
  int64_t groups = 0, o_rank = 0;
  int64_t context = 0;
  // Of Parts::AddRope: at a token's position, turned back from it, and at a pool's first position.
  size_t here = 0, back = 0, pooled = 0;
};

// x: [t, k], normed; result [t, k]. Weights: attn_q_a, attn_q_a_norm, attn_q_b, attn_kv, attn_kv_a_norm, attn_sinks, attn_output_a and _b; of
// pools attn_compressor_kv, _gate, _ape and _norm; of an indexer the same of indexer_compressor, indexer.attn_q_b and indexer.proj.
ValueId BuildCompressedAttention(Parts& parts, ValueId x, const CompressedAttentionSpec& spec);

}  // namespace lockstep
