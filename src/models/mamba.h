// Mamba-2 (Dao, Gu 2024): a state space with one decay a head, as hybrids have it in place of attention.
#pragma once

#include "models/parts.h"

namespace lockstep {

struct MambaSpec {
  int64_t heads = 0, groups = 0;  // heads share B and C in groups; a multiple of them
  int64_t head_width = 0;
  int64_t state_width = 0;
  int64_t taps = 0;  // of the convolution
};

// Sizes from the file's ssm.* keys.
MambaSpec ReadMambaSpec(const ModelSource& source);

// x: [t, k], normed; result [t, k].
ValueId BuildMamba(Parts& parts, ValueId x, const MambaSpec& spec);

}  // namespace lockstep
