// Values of GGUF metadata as bytes: the one place that knows their layout.
#pragma once

#include <cstdint>

#include "gguf/cursor.h"
#include "gguf/metadata.h"

namespace lockstep {

// Arrays of arrays of arrays ... no deeper than this.
inline constexpr int kGgufMaxArrayDepth = 8;

// Bytes of a value of fixed size, 0 for strings and arrays.
uint64_t GgufFixedSize(GgufValueType type);

// A value type id. Refused where it is not known.
GgufValueType ReadGgufValueType(ByteCursor& cursor);

// A value of `type` that lies `depth` arrays deep, checked to its last element.
GgufValue ReadGgufValue(ByteCursor& cursor, GgufValueType type, int depth);

}  // namespace lockstep
