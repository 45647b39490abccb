// Chooses the next token of a sequence from its logits.
//
// A token is a function of (logits, parameters, history, seed, position, mask, state) and of
// nothing else: no generator remembers draws, so that batch mates, rejected drafts and repeated
// requests leave it alone. Arithmetic is our own in a fixed order: the same on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "engine/sampling_params.h"

namespace lockstep {

namespace sampling {
class Candidates;
class DryBreakers;
struct Candidate;
struct Kernels;
struct Scratch;
}  // namespace sampling

// What a sequence must remember from token to token; a copy restores it after a rejected draft.
// Only mirostat and adaptive_p change it.
struct SamplerState {
  double mirostat_mu = 0;      // greatest surprise allowed, bits
  double adaptive_sum = 0;     // of chosen tokens' probabilities, decaying
  double adaptive_weight = 0;  // what `adaptive_sum` is divided by
};

struct TokenLogProb {
  int32_t token;
  double logprob;  // natural logarithm
};

struct TokenDraw {
  int32_t token = -1;
  // Under the softmax of the raw logits: no bias, penalty, temperature or mask. Absolute error
  // below 4e-6; 0 where neither `logprob` nor `n_probs` was asked for.
  double logprob = 0;
  // The n_probs most probable tokens under the same softmax, ties by lower id; tokens of logit -Inf
  // are left out.
  std::vector<TokenLogProb> top;
};

// What one token is drawn from.
struct SampleInput {
  std::span<const float> logits;  // [v]; -Inf forbids a token
  std::span<const int32_t>
      history;  // tokens of the sequence before this one; ids outside the vocabulary are ignored
  int64_t position = 0;  // of the token to draw
  std::span<const uint64_t>
      mask;  // empty, or [ceil(v / 64)]: bit i % 64 of word i / 64 allows token i
};

class Sampler {
 public:
  // Refused, as SamplingParams::Validate() says. `dry_breakers` are token sequences at which the
  // DRY sampler's repetitions end: see DryBreakerTokens().
  static Result<Sampler> Create(SamplingParams params, int64_t vocab_size,
                                std::vector<std::vector<int32_t>> dry_breakers = {});

  // The state of a sequence before its first token.
  SamplerState InitialState() const;

  // Draws a token and moves `state` on. Failed, with `state` as it was, where a logit is NaN or
  // +Inf (names the token), where every token is forbidden, or where sizes do not fit the
  // vocabulary. Ties between logits go to the lower id, in greedy choice and in every truncation.
  // Temperature <= 0 chooses the greatest logit after bias and the chain's penalties, whatever else
  // the chain holds.
  Result<TokenDraw> Sample(const SampleInput& input, SamplerState& state) const;

  // The distribution that Sample() draws from: tokens of non-zero probability in ascending id,
  // `logprob` after the whole chain. Fails like Sample().
  Result<std::vector<TokenLogProb>> Distribution(const SampleInput& input,
                                                 const SamplerState& state) const;

  const SamplingParams& params() const { return params_; }
  int64_t vocab_size() const { return vocab_size_; }
  // The seed in use: that of the parameters, or the one the system gave in its place.
  uint64_t seed() const { return seed_; }

 private:
  Sampler(SamplingParams params, int64_t vocab_size, std::vector<std::vector<int32_t>> dry_breakers,
          uint64_t seed, const sampling::Kernels& kernels);

  void SetBias();
  std::optional<Error> CheckSizes(const SampleInput& input) const;
  // Checks the input and runs the chain; there is a candidate at least.
  Result<sampling::Candidates> Prepare(const SampleInput& input, const SamplerState& state,
                                       sampling::Scratch& scratch) const;
  void RunChain(const SampleInput& input, const SamplerState& state,
                sampling::Candidates& candidates) const;
  sampling::Candidate Draw(const SampleInput& input, sampling::Candidates& candidates,
                           SamplerState& state) const;
  sampling::Candidate DrawAdaptive(double uniform, sampling::Candidates& candidates,
                                   SamplerState& state) const;
  double AdaptedTarget(const SamplerState& state) const;
  void AddLogProbs(std::span<const float> logits, sampling::Scratch& scratch,
                   TokenDraw& draw) const;

  SamplingParams params_;
  int64_t vocab_size_;
  std::shared_ptr<const sampling::DryBreakers> breakers_;
  uint64_t seed_;
  const sampling::Kernels* kernels_;
  std::vector<int32_t> bias_ids_;  // ascending, distinct
  std::vector<double> biases_;
  bool greedy_;
  bool adaptive_;
};

// The token sequences with which DRY breaker texts can appear: each token whose text holds the
// breaker, or ends with a beginning of it followed by the tokens of its rest. `token_text(id)` is
// the text of a token, `tokenize(text)` the tokens of a text without special ones. Breakers are cut
// at 40 bytes and sequences at 20 tokens after the first, like llama.cpp's; empty breakers are
// skipped.
std::vector<std::vector<int32_t>> DryBreakerTokens(
    std::span<const std::string> breakers, int64_t vocab_size,
    FunctionRef<std::string(int32_t)> token_text,
    FunctionRef<std::vector<int32_t>(std::string_view)> tokenize);

}  // namespace lockstep
