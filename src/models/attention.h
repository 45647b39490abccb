// Soft-max attention as a piece of a layer: projections, norms of queries and keys, rope, cache, output projection.
#pragma once

#include <functional>
#include <optional>

#include "models/parts.h"

namespace lockstep {

// Positions that a layer sees: [t, n] of MakeSelectKeys, at most `most`; kNoValue: all.
struct Selection {
  ValueId positions = kNoValue;
  int64_t most = 0;
};

struct AttentionSpec {
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides heads
  int64_t dk = 0, dv = 0;
  int64_t window = 0;               // positions seen, 0: all
  std::optional<size_t> rope = 0u;  // index of Parts::AddRope; none: positions are not told
  float scale = 0;                  // 0: 1 / sqrt(dk)
  float soft_cap = 0;               // 0: none
  enum class QkNorm {
    kNone,
    kHead,  // each head's query and key: attn_q_norm, attn_k_norm of [d]
    kAll,   // all heads at once, weights of [g, r, d] and [g, d]
  };
  QkNorm qk_norm = QkNorm::kNone;
  bool gate_in_query = false;  // attn_q has for each head its query and then a gate, by whose sigmoid the head's result is multiplied
  bool norm_after_rope = false;      // queries and keys are normed once they are rotated
  bool sinks = false;                // a score of each head that sees nothing: attn_sinks
  std::function<Selection(Parts& parts, ValueId x)> select;  // null: all positions are seen
  float value_scale = 1;             // of values
  bool keys_as_values = false;       // without attn_v, values are the keys as projected
  bool norm_values = false;          // each head's values, without a weight
  std::optional<int32_t> kv_layer;   // sees the cache of that layer and has no keys and values of its own
  std::string_view state = "kv";     // the name of its cache
  std::optional<int32_t>
      state_slot;  // its cache is this one of the graph beside which its own runs (GraphBuilder::OtherState)
  SeenEnd seen_end = SeenEnd::kOwn;
  std::optional<Activation> gate;    // heads times this of attn_gate x: one number for each head, or for each of its numbers
  float temperature_beta = 0;  // query scale by position (MakePositionScale), 0: none
  int64_t temperature_length = 0;
};

// Queries see the cache of this layer (or of kv_layer), to which the keys and values of x are appended. x: [t, k], normed; result [t, k].
ValueId BuildAttention(Parts& parts, ValueId x, const AttentionSpec& spec);

// Appends keys and values of x to the layer's cache, and gives its K.
ValueId AppendKeys(Parts& parts, ValueId x, const AttentionSpec& spec);

}  // namespace lockstep
