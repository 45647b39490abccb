// What rows of logits say of the tokens that came: the arithmetic of perplexity and divergence.
// Bits do not depend on instruction set or threads.
#pragma once

#include <cstdint>
#include <span>

#include "simd/isa.h"

namespace lockstep {

// ln(sum of e^x); absolute error below 4e-6. The logits are finite.
double LogSumExp(std::span<const float> logits, Isa isa);

// The index of the greatest logit, the lowest of equals.
int32_t GreatestLogit(std::span<const float> logits);

struct TokenScore {
  double logprob = 0;  // of the token that came, natural logarithm
  int32_t top = 0;     // the likeliest token
};

// One row. `token` is an index into it.
TokenScore ScoreToken(std::span<const float> logits, int32_t token, Isa isa);

// How one distribution differs from a base, at one row.
struct TokenDivergence {
  double kl = 0;            // sum of p_base * ln(p_base / p); nats
  double base_logprob = 0;  // of the token that came
  double logprob = 0;
  bool same_top = false;
};

// `base` and `logits` have the same size; both as logits, so that equal bits give exactly 0.
TokenDivergence Diverge(std::span<const float> base, std::span<const float> logits, int32_t token,
                        Isa isa);

}  // namespace lockstep
