// Rows that weights are multiplied by, as numbers: for what looks at activations (Operation::ShowMultiplied).
#pragma once

#include <span>
#include <vector>

#include "ops/operation.h"

namespace lockstep {

// Columns [first, first + size) of row `token` of an operand in either form, valid until `buffer` changes.
std::span<const float> MultipliedRow(const Operand& rows, int64_t token, int64_t first,
                                     int64_t size, std::vector<float>& buffer);
// The same for rows in codes.
std::span<const float> MultipliedRow(const QuantizedRows& rows, int64_t token, int64_t first,
                                     int64_t size, std::vector<float>& buffer);

}  // namespace lockstep
