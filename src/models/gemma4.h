// What the layers of Gemma 4 and of its assistants have in common.
#pragma once

#include "models/decoder.h"

namespace lockstep {

// Sizes, heads and ropes by kind of layer, norms, and the scale of each layer's output (layer_output_scale). Every layer has keys of its own.
DecoderSpec ReadGemma4Layers(const ModelSource& source);

}  // namespace lockstep
