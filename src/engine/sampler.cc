#include "engine/sampler.h"

#include <algorithm>
#include <limits>

#include "engine/random.h"
#include "engine/sampling_steps.h"

namespace lockstep {

using sampling::Candidate;
using sampling::Candidates;
using sampling::Scratch;
using sampling::Softmax;

namespace {

constexpr int64_t kSystemSeed = 4294967295;
// Streams of random numbers at one position: the draw of the token, then one for each sampler of
// the chain.
constexpr uint32_t kDrawStream = 0, kFirstStepStream = 1;

// Memory only: a vocabulary's worth is too much to allocate for every token.
Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

Error BadLogit(std::span<const float> logits) {
  auto bad = std::find_if(logits.begin(), logits.end(), [](float logit) {
    return !(logit <= std::numeric_limits<float>::max());
  });
  return Failed("sampling: logit of token {}: expected a number or -inf, found {}",
                bad - logits.begin(), bad == logits.end() ? 0 : *bad);
}

}  // namespace

Result<Sampler> Sampler::Create(SamplingParams params, int64_t vocab_size,
                                std::vector<std::vector<int32_t>> dry_breakers) {
  if (auto error = params.Validate(vocab_size)) return *error;
  uint64_t seed = static_cast<uint64_t>(params.seed);
  if (params.seed < 0 || params.seed == kSystemSeed) {
    Result<uint64_t> system = SystemSeed();
    if (!system.ok()) return system.error();
    seed = *system;
  }
  try {
    const sampling::Kernels& kernels = sampling::KernelsFor(BestIsa());
    return Sampler(std::move(params), vocab_size, std::move(dry_breakers), seed, kernels);
  } catch (const Error& error) {  // BestIsa() does not know what the environment asks for
    return error;
  }
}

Sampler::Sampler(SamplingParams params, int64_t vocab_size,
                 std::vector<std::vector<int32_t>> dry_breakers, uint64_t seed,
                 const sampling::Kernels& kernels)
    : params_(std::move(params)),
      vocab_size_(vocab_size),
      breakers_(std::make_shared<const sampling::DryBreakers>(std::move(dry_breakers))),
      seed_(seed),
      kernels_(&kernels),
      greedy_(params_.temp <= 0),
      adaptive_(!greedy_ && params_.mirostat == 0 && params_.adaptive_target >= 0 &&
                std::count(params_.samplers.begin(), params_.samplers.end(),
                           SamplerKind::kAdaptiveP) > 0) {
  SetBias();
}

void Sampler::SetBias() {
  constexpr double kMaxBias = 100;
  std::vector<LogitBias> sorted = params_.logit_bias;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  for (const LogitBias& entry : sorted) {
    auto id = static_cast<int32_t>(entry.token);
    if (bias_ids_.empty() || bias_ids_.back() != id) {
      bias_ids_.push_back(id);
      biases_.push_back(0);
    }
    bool forbids = entry.bias == -std::numeric_limits<float>::infinity();
    biases_.back() += forbids ? entry.bias : std::clamp<double>(entry.bias, -kMaxBias, kMaxBias);
  }
}

SamplerState Sampler::InitialState() const {
  double weight = 1 / (1 - static_cast<double>(params_.adaptive_decay));
  return {2 * static_cast<double>(params_.mirostat_tau), params_.adaptive_target * weight, weight};
}

std::optional<Error> Sampler::CheckSizes(const SampleInput& input) const {
  if (input.logits.size() != static_cast<size_t>(vocab_size_)) {
    return Failed("sampling: logits: expected {}, found {}", vocab_size_, input.logits.size());
  }
  size_t words = (input.logits.size() + 63) / 64;
  if (!input.mask.empty() && input.mask.size() != words) {
    return Failed("sampling: mask: expected {} words, found {}", words, input.mask.size());
  }
  return std::nullopt;
}

Result<Candidates> Sampler::Prepare(const SampleInput& input, const SamplerState& state,
                                    Scratch& scratch) const {
  if (auto error = CheckSizes(input)) return *error;
  Candidates candidates(input.logits, *kernels_, scratch);
  if (!candidates.legal()) return BadLogit(input.logits);
  if (!input.mask.empty()) candidates.Forbid(input.mask);
  candidates.Adjust(bias_ids_, [&](size_t i, double logit) { return logit + biases_[i]; });
  RunChain(input, state, candidates);
  if (candidates.Max() == -sampling::kInfinity) return Failed("sampling: every token is forbidden");
  return candidates;
}

void Sampler::RunChain(const SampleInput& input, const SamplerState& state,
                       Candidates& candidates) const {
  for (size_t i = 0; params_.mirostat == 0 && i < params_.samplers.size(); ++i) {
    SamplerKind kind = params_.samplers[i];
    if (greedy_ && !sampling::IsPenalty(kind)) continue;
    double uniform =
        UniformDraw(seed_, input.position, kFirstStepStream + static_cast<uint32_t>(i));
    sampling::StepOf(kind)({params_, *breakers_, input.history, vocab_size_, uniform}, candidates);
  }
  if (greedy_) return candidates.KeepTop(1);
  if (params_.mirostat == 0) return;
  sampling::ScaleTemperature(candidates, params_.temp);
  if (params_.mirostat == 1) {
    sampling::TruncateMirostat1(candidates, state.mirostat_mu, vocab_size_);
  } else {
    sampling::TruncateMirostat2(candidates, state.mirostat_mu);
  }
}

// Aims beside the target, by as much as the average of the chosen probabilities has missed it.
double Sampler::AdaptedTarget(const SamplerState& state) const {
  double target = params_.adaptive_target;
  if (state.adaptive_weight > 0) target = 2 * target - state.adaptive_sum / state.adaptive_weight;
  return std::clamp(target, 0.0, 1.0);
}

Candidate Sampler::Draw(const SampleInput& input, Candidates& candidates,
                        SamplerState& state) const {
  double uniform = UniformDraw(seed_, input.position, kDrawStream);
  if (adaptive_) return DrawAdaptive(uniform, candidates, state);
  Softmax softmax = candidates.ComputeSoftmax();
  Candidate picked = candidates.Pick(softmax, uniform);
  if (params_.mirostat != 0 && !greedy_) {
    double surprise = -softmax.LogProb(picked) / sampling::kLn2;
    state.mirostat_mu -= params_.mirostat_eta * (surprise - params_.mirostat_tau);
  }
  return picked;
}

Candidate Sampler::DrawAdaptive(double uniform, Candidates& candidates, SamplerState& state) const {
  std::vector<Candidate> before = candidates.List();
  Softmax chain = candidates.ComputeSoftmax();
  sampling::TransformAdaptive(candidates, AdaptedTarget(state));
  Softmax softmax = candidates.ComputeSoftmax();
  int32_t id = candidates.Pick(softmax, uniform).id;
  auto picked =
      std::find_if(before.begin(), before.end(), [&](const Candidate& c) { return c.id == id; });
  double decay = params_.adaptive_decay;
  state.adaptive_sum = chain.Prob(*picked) + decay * state.adaptive_sum;
  state.adaptive_weight = 1 + decay * state.adaptive_weight;
  return *picked;
}

Result<TokenDraw> Sampler::Sample(const SampleInput& input, SamplerState& state) const {
  Scratch& scratch = ThreadScratch();
  Result<Candidates> prepared = Prepare(input, state, scratch);
  if (!prepared.ok()) return prepared.error();
  Candidates candidates = *prepared;
  TokenDraw draw;
  draw.token = Draw(input, candidates, state).id;
  if (params_.logprob || params_.n_probs > 0) AddLogProbs(input.logits, scratch, draw);
  return draw;
}

void Sampler::AddLogProbs(std::span<const float> logits, Scratch& scratch, TokenDraw& draw) const {
  Candidates candidates(logits, *kernels_, scratch);
  Softmax softmax = candidates.ComputeSoftmax();
  draw.logprob = softmax.LogProb({draw.token, logits[static_cast<size_t>(draw.token)]});
  if (params_.n_probs == 0) return;
  candidates.KeepTop(static_cast<size_t>(params_.n_probs));
  candidates.VisitFromTop([&](const Candidate& c) {
    draw.top.push_back({c.id, softmax.LogProb(c)});
    return true;
  });
}

Result<std::vector<TokenLogProb>> Sampler::Distribution(const SampleInput& input,
                                                        const SamplerState& state) const {
  Result<Candidates> prepared = Prepare(input, state, ThreadScratch());
  if (!prepared.ok()) return prepared.error();
  Candidates candidates = *prepared;
  if (adaptive_) sampling::TransformAdaptive(candidates, AdaptedTarget(state));
  candidates.List();
  Softmax softmax = candidates.ComputeSoftmax();
  std::vector<TokenLogProb> result;
  for (const Candidate& c : candidates.List()) {
    if (softmax.Prob(c) > 0) result.push_back({c.id, softmax.LogProb(c)});
  }
  return result;
}

std::vector<std::vector<int32_t>> DryBreakerTokens(
    std::span<const std::string> breakers, int64_t vocab_size,
    FunctionRef<std::string(int32_t)> token_text,
    FunctionRef<std::vector<int32_t>(std::string_view)> tokenize) {
  constexpr size_t kMaxBytes = 40, kMaxTail = 20;
  std::vector<std::vector<int32_t>> sequences;
  auto add = [&](int32_t head, std::string_view rest) {
    std::vector<int32_t> sequence = {head};
    std::vector<int32_t> tail = rest.empty() ? std::vector<int32_t>() : tokenize(rest);
    tail.resize(std::min(tail.size(), kMaxTail));
    sequence.insert(sequence.end(), tail.begin(), tail.end());
    sequences.push_back(std::move(sequence));
  };
  for (int32_t id = 0; id < vocab_size; ++id) {
    std::string text = token_text(id);
    for (std::string_view breaker : breakers) {
      breaker = breaker.substr(0, kMaxBytes);
      if (breaker.empty()) continue;
      if (text.find(breaker) != std::string::npos) {
        add(id, {});
        continue;
      }
      for (size_t known = 1; known < breaker.size() && known <= text.size(); ++known) {
        if (text.ends_with(breaker.substr(0, known))) add(id, breaker.substr(known));
      }
    }
  }
  return sequences;
}

}  // namespace lockstep
