// What the Gemma family's converters share.
#pragma once

#include "convert/converters.h"

namespace lockstep {

// Embedding and final norm; the output head is the embedding. Norms are stored less 1.
std::vector<TensorRule> GemmaModelTensors();
// Attention, gated feed-forward, and norms on both sides of each.
std::vector<TensorRule> GemmaLayerTensors();
// attention.scale, a key of our own: llama.cpp derives it from sizes, which need not give it.
void SetGemmaScaleKey(const Config& config, Keys& keys);

}  // namespace lockstep
