// Embeddings of n-grams as a file describes them.
#pragma once

#include <optional>
#include <vector>

#include "models/source.h"
#include "ops/ngram.h"

namespace lockstep {

// The n-gram embeddings of one layer, in a table that all such layers share.
struct NgramSpec {
  NgramSettings settings;
  int64_t table_rows = 0;
  int64_t orders = 0;  // n-grams of 2 .. orders + 1 tokens
  int64_t taps = 0;    // of the convolution over what they give
  int32_t end = 0;     // token at which a text ends
};

// By layer: ple.layers and, for each of them in that order, its share of ple.layer_multipliers, ple.head_offsets and ple.head_vocab_sizes.
std::vector<std::optional<NgramSpec>> ReadNgrams(const ModelSource& source, size_t layers);

}  // namespace lockstep
