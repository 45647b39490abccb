// Attention over some of the cached positions, named by a selection (ops/select_keys.h), and over entries that stand for pools of positions.
//
// Canonical order: that of ops/attention.h over a sequence of n rows, where row i is the i-th of what is gathered: first the entries of the
// pooled state, ascending, then the positions, ascending. So blocks and spans hold 64 and 512 of the rows gathered, wherever they come
// from; where all positions are selected it is attention over them, bit for bit.
#pragma once

#include "ops/operations.h"

namespace lockstep {

struct GatheredAttentionSettings {
  // Scale, cap and sinks. Without a selection of positions the window's are gathered.
  AttentionSettings attention;
  bool positions_selected = false;
  bool with_entries =
      false;  // all whole pools of a second state, which has V in K as the first one does
  bool entries_selected = false;
  int64_t most_rows = 0;  // gathered for one token
};

// Operands: q [t, g, r, d], K and V; a selection of positions [t, n]; K of the pooled state; a selection of entries [t, n]; sinks [g, r]; those
// that the settings name. Result [t, g, r, dv].
OperationPtr MakeGatheredAttention(const GatheredAttentionSettings& settings);

}  // namespace lockstep
