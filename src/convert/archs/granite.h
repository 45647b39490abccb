// What the Granite family's converters share.
#pragma once

#include "convert/converters.h"

namespace lockstep {

inline constexpr std::string_view kGraniteDefaults =
    R"({"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0, "logits_scaling": 1.0})";

// SetDecoderKeys, and the multipliers.
void SetGraniteKeys(const Config& config, Keys& keys);

}  // namespace lockstep
