// One head given to all: y[t, h, d] = x[t, 0, d].
#pragma once

#include "ops/operations.h"

namespace lockstep {

inline constexpr std::string_view kRepeatRule = "t*d! -> thd";

// x: [t, d] or [t, 1, d] -> [t, heads, d]
OperationPtr MakeRepeat(int64_t heads, int64_t d);

}  // namespace lockstep
