// What checkpoints with recurrent layers share.
#pragma once

#include "convert/converters.h"

namespace lockstep {

// Filters of a convolution: [n, 1, taps] as checkpoints have them to [n, taps].
Values Filters(const Values& values, const Place& place);
// -exp(x): checkpoints hold the logarithm of the rate of decay, files its negative.
Values NegativeExp(const Values& values, const Place& place);
// A vector as a matrix of one column.
Values Column(const Values& values, const Place& place);
// Gate and up of [.., gate rows then up rows, n].
Values GateHalf(const Values& values, const Place& place);
Values UpHalf(const Values& values, const Place& place);

}  // namespace lockstep
