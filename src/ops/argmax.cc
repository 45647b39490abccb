#include "ops/argmax.h"

#include <cmath>

namespace lockstep {

int64_t ArgmaxReference(const float* x, int64_t d) {
  int64_t best = -1;
  for (int64_t i = 0; i < d; ++i) {
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  }
  return best;
}

}  // namespace lockstep
