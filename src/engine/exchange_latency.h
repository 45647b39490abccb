// What a collective costs between ranks of this process, beside the bytes: the yardstick of plans.
#pragma once

namespace lockstep {

// Seconds of an exchange of a few bytes between two ranks of one thread each, in about 0.05 s.
double MeasureExchangeLatency();

}  // namespace lockstep
