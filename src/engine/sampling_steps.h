// The samplers of a chain, each a change to the set of candidates. Internal to the sampler.
#pragma once

#include <cstdint>
#include <span>

#include "engine/sampling_candidates.h"
#include "engine/sampling_history.h"
#include "engine/sampling_params.h"

namespace lockstep::sampling {

// What a step may look at.
struct StepInput {
  const SamplingParams& params;
  const DryBreakers& breakers;
  std::span<const int32_t> history;
  int64_t vocab_size;
  double uniform;  // this step's random number
};

using Step = void (*)(const StepInput& input, Candidates& candidates);

// The step of a sampler in a chain; nothing for adaptive_p, which is no step but a way to pick.
Step StepOf(SamplerKind kind);
// True for the steps that change logits by the history, which greedy choice obeys too; the others
// only truncate, scale or pick.
bool IsPenalty(SamplerKind kind);

// Divides the logits by `temp`; keeps the first candidate only where it is not positive.
void ScaleTemperature(Candidates& candidates, double temp);

// The truncations of mirostat 1 and 2 for the present `mu`. Source: Basu et al., "Mirostat: a
// neural text decoding algorithm that directly controls perplexity", ICLR 2021.
void TruncateMirostat1(Candidates& candidates, double mu, int64_t vocab_size);
void TruncateMirostat2(Candidates& candidates, double mu);

// Replaces the logits by ones that prefer probabilities near `target`. Source:
// github.com/ggml-org/llama.cpp, pull 17927.
void TransformAdaptive(Candidates& candidates, double target);

}  // namespace lockstep::sampling
