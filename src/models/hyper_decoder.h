// The decoder whose residual is several streams, mixed by hyper-connections (ops/hyper_connections.h) around every branch.
#pragma once

#include "models/decoder.h"
#include "ops/hyper_connections.h"

namespace lockstep {

struct HyperSpec {
  HyperConnections connections;
  bool weighted_head =
      true;  // streams are collapsed at the end by output_hc_*, otherwise to their mean
};

// hyper_connection.count, sinkhorn_iterations and epsilon.
HyperSpec ReadHyperConnections(const ModelSource& source);

// As BuildDecoder. Weights of a branch: hc_attn_fn, hc_attn_base and hc_attn_scale, or hc_ffn_*. The hidden values are the streams, [t, n, k].
Graph BuildHyperDecoder(const ModelSource& source, const DecoderSpec& spec, const HyperSpec& hyper);

}  // namespace lockstep
