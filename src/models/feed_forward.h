// Gated feed-forward as a piece of a layer.
#pragma once

#include "models/parts.h"

namespace lockstep {

struct FeedForwardSpec {
  int64_t width = 0;  // f
  Gating gating;
  bool gate_in_up = false;       // without ffn_gate, ffn_up has the gate's rows and then its own
  std::string_view suffix = {};  // of the tensors: "_shexp" in ffn_gate_shexp
};

// x: [t, k], normed; result [t, k].
ValueId BuildFeedForward(Parts& parts, ValueId x, const FeedForwardSpec& spec);

}  // namespace lockstep
