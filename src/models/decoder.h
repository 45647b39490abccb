// The decoder that most architectures are: an architecture's file fills in a DecoderSpec, this file states the graph.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "models/source.h"

namespace lockstep {

// One layer of a decoder.
struct LayerSpec {
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides heads
  int64_t ff_width = 0;
  int64_t window = 0;    // positions seen, 0: all
  size_t rope = 0;       // index into DecoderSpec::ropes
};

struct RopeSpec {
  RopeOptions options;
  RopePairing pairing = RopePairing::kHalves;
};

struct DecoderSpec {
  int64_t width = 0;  // k, n
  int64_t vocab = 0;
  int64_t dk = 0, dv = 0;  // head width of keys and of values
  std::vector<LayerSpec> layers;
  std::vector<RopeSpec> ropes;
  float norm_eps = 1e-5f;
  Gating gating;

  float embedding_scale = 1;
  float attention_scale = 0;  // 0: 1 / sqrt(dk)
  float residual_scale = 1;
  float logit_scale = 1;
  float attention_cap = 0;  // soft caps, 0: none
  float logit_cap = 0;
  float temperature_beta = 0;  // query scale by position (MakePositionScale), 0: none
  int64_t temperature_length = 0;

  bool qk_norm = false;         // norm of each head's query and key: attn_q_norm, attn_k_norm
  bool gate_in_up = false;      // without ffn_gate, ffn_up has the gate's rows and then its own
  bool post_norms = false;      // norms after attention and feed-forward: post_attention_norm, post_ffw_norm
};

// Reads the keys that all decoders share: sizes, heads, layers, norm epsilon, rope with every scaling, scales and caps where the file
// has them. `pairing`: of the architecture.
DecoderSpec ReadDecoderSpec(const ModelSource& source, RopePairing pairing);

// The rope options of a file, with base frequency from `base_key` (or `base_default` without it).
RopeOptions ReadRopeOptions(const ModelSource& source, int64_t n_rot, std::string_view base_key, double base_default);

// Makes every layer windowed but each `period`-th (the last of each run), unless the file lists them.
void SetWindowPattern(const ModelSource& source, int64_t period, DecoderSpec& spec);

// States the graph. Tensor names are llama.cpp's; fused attn_qkv and ffn_up tensors are taken apart by rows, biases
// are used where the file has them, a missing output head is the embedding.
Graph BuildDecoder(const ModelSource& source, const DecoderSpec& spec);

}  // namespace lockstep
