// y = sqrt(x), correctly rounded; of the scores of a router (DeepSeek-V4).
#pragma once

#include "ops/operations.h"

namespace lockstep {

OperationPtr MakeRoot();

}  // namespace lockstep
