// Latent attention (DeepSeek-V2, DeepSeek-AI 2024, section 2.1) as a piece of a layer: keys and values of all heads are made from one latent
// row, which is what is cached, beside a part of the key that is rotated and shared by all heads.
//
// One form for prompt and decode, the absorbed one: queries are taken into the latent space and attend to latents, whose weighted sums
// are taken out of it again, so that a position costs one row of kv_rank + rope numbers (docs/numerics.md says why). Where an
// indexer is there (DeepSeek-V3.2, DeepSeek-AI 2025) attention sees the positions that it selects.
#pragma once

#include <memory>
#include <optional>

#include "models/decoder.h"

namespace lockstep {

enum class LatentForm {
  kAbsorbed,
  kExpanded,  // keys and values of every head are cached; for comparison
};

struct IndexerSpec {
  int64_t heads = 0;
  int64_t d = 0;
  int64_t top_k = 0;  // positions
  RopePairing pairing = RopePairing::kHalves;
  int64_t pool = 1;  // positions that are selected together, by a key made of theirs
  float norm_eps = 1e-6f;  // of the keys' norm
};

struct LatentAttentionSpec {
  int64_t heads = 0;
  int64_t q_rank = 0;   // of the latent that queries are made from, 0: from the stream itself
  int64_t kv_rank = 0;  // of the latent that is cached
  int64_t nope = 0;     // numbers of a head's query and key without rope
  int64_t rope = 0;     // and with it, 0: none
  int64_t dv = 0;
  float scale = 0;
  size_t rope_index = 0;       // of Parts::AddRope
  float temperature_beta = 0;  // query scale by position (MakePositionScale), 0: none
  int64_t temperature_length = 0;
  LatentForm form = LatentForm::kAbsorbed;
};

// Keys of latent attention; without ropes in `spec` no part of a head is rotated. Takes the part of YaRN's factor that belongs to the scores out of the rope of `spec`.
LatentAttentionSpec ReadLatentAttention(const ModelSource& source, DecoderSpec& spec);
// attention.indexer.head_count, key_length, top_k and kpool, attention.layer_norm_epsilon. rope: numbers of a key that are rotated.
IndexerSpec ReadIndexer(const ModelSource& source, RopePairing pairing, int64_t rope);

// x: [t, k], normed; query_latent: [t, q_rank], x itself where queries have none; result [t, k].
// Weights: attn_q, or attn_q_a, attn_q_a_norm, attn_q_b; attn_kv_a_mqa, attn_kv_a_norm; attn_k_b and attn_v_b, or attn_kv_b; attn_output.
ValueId BuildLatentAttention(Parts& parts, ValueId x, ValueId query_latent,
                             const LatentAttentionSpec& spec, const Selection& selection = {});

// The latent that queries are made from: x where there is none. [t, q_rank]
ValueId BuildQueryLatent(Parts& parts, ValueId x, const LatentAttentionSpec& spec);
// The positions of the largest index scores. Weights: indexer.attn_q_b, indexer.attn_k, indexer.k_norm, indexer.proj; of pools
// indexer_compressor_gate and indexer_compressor_ape.
Selection BuildSelection(Parts& parts, ValueId x, ValueId query_latent,
                         const LatentAttentionSpec& spec, const IndexerSpec& indexer);

// Experts of the layers that have them, scored by sigmoid where the file corrects choices (DeepSeek-V3), by soft-max otherwise (V2), and one that
// every token sees.
void UseExperts(const ModelSource& source, DecoderSpec& spec);

// Makes latent attention every layer's.
void UseLatentAttention(DecoderSpec& spec, const LatentAttentionSpec& latent);
// The same over positions that indexers select. Layers without an indexer of their own, those where own[i] is false, see what the last indexer
// before them selected.
void UseSelectedAttention(DecoderSpec& spec, const LatentAttentionSpec& latent,
                          const IndexerSpec& indexer, const std::vector<bool>& own);

}  // namespace lockstep
