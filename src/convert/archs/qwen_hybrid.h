// Gated delta networks of Qwen's hybrids in checkpoints and files.
#pragma once

#include "convert/converters.h"

namespace lockstep {

// Sizes, the rhythm of the layers and those of the delta network.
void SetHybridKeys(const Config& config, Keys& keys);
// Layers that are delta networks, and the others.
bool IsDeltaNet(const Place& place);
bool IsGatedAttention(const Place& place);
// Tensors of a delta network with its projections apart; value heads are tiled over the key heads in files.
std::vector<TensorRule> TiledDeltaNetTensors();
// Norms that are stored less 1, and attention with its norms; in layers after the last they are those of the block that predicts further ahead.
std::vector<TensorRule> HybridLayerTensors();
// The attention alone.
std::vector<TensorRule> GatedAttentionTensors();
// Router, experts, and the expert that every token sees with its gate; a feed-forward where a layer is dense.
std::vector<TensorRule> HybridExpertTensors();
std::vector<TensorRule> HybridModelTensors();

}  // namespace lockstep
