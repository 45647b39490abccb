// Short causal convolutions as a piece of recurrent layers.
#pragma once

#include <optional>

#include "models/parts.h"

namespace lockstep {

struct ConvSpec {
  std::string_view tensor;  // of the layer, [channels, taps]
  int64_t row = 0;          // first of this convolution's channels in it
  int64_t rows = 0;         // channels of the whole tensor, 0: as many as x has
  int64_t taps = 0;
  int64_t dilation = 1;  // rows from tap to tap
  std::optional<Activation> activation;
};

// x: [t, ...]; result of the same axes. The layer keeps the rows of x that later tokens see, as state NAME. A bias is used where the
// file has one.
ValueId BuildConv(Parts& parts, std::string_view name, ValueId x, const ConvSpec& spec);

// `key`: convolution taps, within what the operation takes.
int64_t ReadConvTaps(const ModelSource& source, std::string_view key);

}  // namespace lockstep
