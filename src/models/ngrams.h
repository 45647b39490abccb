// Embeddings of n-grams as a file describes them, and as a piece of a layer.
#pragma once

#include <optional>
#include <vector>

#include "models/parts.h"
#include "ops/ngram.h"

namespace lockstep {

// The n-gram embeddings of one layer, in a table that all such layers share.
struct NgramSpec {
  NgramSettings settings;
  int64_t table_rows = 0;
  int64_t orders = 0;  // n-grams of 2 .. orders + 1 tokens
  int64_t taps = 0;    // of the convolution over what they give
  int32_t end = 0;     // token at which a text ends

  // Tables looked up for a token, and the width of what each gives.
  Axis heads() const { return {'r', std::ssize(settings.sizes), 1}; }
  Axis d() const { return {'d', settings.d, settings.d}; }
};

// By layer: ple.layers and, for each of them in that order, its share of ple.layer_multipliers, ple.head_offsets and ple.head_vocab_sizes.
std::vector<std::optional<NgramSpec>> ReadNgrams(const ModelSource& source, size_t layers);

// What the n-grams that end at each token give: [t, r, d]. Weights: per_layer_token_embd.
ValueId BuildNgrams(Parts& parts, const NgramSpec& spec);

}  // namespace lockstep
