#include "engine/token_score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/sampling_kernels.h"

namespace lockstep {

double LogSumExp(std::span<const float> logits, Isa isa) {
  using sampling::kBlock;
  const sampling::Kernels& kernels = sampling::KernelsFor(isa);
  const size_t whole = logits.size() / kBlock;
  std::vector<float> of_block(whole + 1);
  // Blocks are whole: the rest gets company that counts nothing.
  float rest[kBlock];
  std::fill(std::begin(rest), std::end(rest), -std::numeric_limits<float>::infinity());
  std::copy(logits.begin() + static_cast<std::ptrdiff_t>(whole * kBlock), logits.end(), rest);
  kernels.block_max(logits.data(), whole, of_block.data());
  kernels.block_max(rest, 1, &of_block[whole]);
  const float greatest = std::ranges::max(of_block);
  kernels.exp_sums(logits.data(), whole, greatest, of_block.data());
  kernels.exp_sums(rest, 1, greatest, &of_block[whole]);
  double sum = 0;
  for (float part : of_block) sum += double{part};
  return greatest + std::log(sum);
}

int32_t GreatestLogit(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

TokenScore ScoreToken(std::span<const float> logits, int32_t token, Isa isa) {
  return {double{logits[static_cast<size_t>(token)]} - LogSumExp(logits, isa),
          GreatestLogit(logits)};
}

TokenDivergence Diverge(std::span<const float> base, std::span<const float> logits, int32_t token,
                        Isa isa) {
  const double base_sum = LogSumExp(base, isa), sum = LogSumExp(logits, isa);
  TokenDivergence result;
  for (size_t i = 0; i < base.size(); ++i) {
    const double p = double{base[i]} - base_sum;
    result.kl += std::exp(p) * (p - (double{logits[i]} - sum));
  }
  result.base_logprob = double{base[static_cast<size_t>(token)]} - base_sum;
  result.logprob = double{logits[static_cast<size_t>(token)]} - sum;
  result.same_top = GreatestLogit(base) == GreatestLogit(logits);
  return result;
}

}  // namespace lockstep
