#include "engine/sampling_steps.h"

#include <cmath>
#include <limits>

namespace lockstep::sampling {
namespace {

// In nats.
double Entropy(Candidates& candidates, const Softmax& softmax) {
  double entropy = 0;
  for (const Candidate& c : candidates.List()) {
    double prob = softmax.Prob(c);
    if (prob > 0) entropy -= prob * softmax.LogProb(c);
  }
  return entropy;
}

constexpr double kMaxPenalty = std::numeric_limits<float>::max();

// Source: Keskar et al., "CTRL", arXiv 1909.05858, with multiplication for negative logits;
// OpenAI's frequency and presence penalties.
void Penalties(const StepInput& input, Candidates& candidates) {
  const SamplingParams& p = input.params;
  if (p.penalty_repeat == 1 && p.penalty_freq == 0 && p.penalty_present == 0) return;
  TokenCounts seen = CountTokens(LastTokens(input.history, p.penalty_last_n), input.vocab_size);
  double repeat = p.penalty_repeat, frequency = p.penalty_freq, presence = p.penalty_present;
  candidates.Adjust(seen.ids, [&](size_t i, double logit) {
    double scaled = logit <= 0 ? logit * repeat : logit / repeat;
    return scaled - (seen.counts[i] * frequency + presence);
  });
}

void Dry(const StepInput& input, Candidates& candidates) {
  const SamplingParams& p = input.params;
  if (p.dry_multiplier == 0 || p.dry_base < 1 || p.dry_penalty_last_n == 0) return;
  Repetitions found = FindRepetitions(LastTokens(input.history, p.dry_penalty_last_n),
                                      input.breakers, p.dry_allowed_length, input.vocab_size);
  candidates.Adjust(found.ids, [&](size_t i, double logit) {
    auto excess = static_cast<uint64_t>(found.lengths[i] - p.dry_allowed_length);
    return logit - std::min(p.dry_multiplier * IntPow(p.dry_base, excess), kMaxPenalty);
  });
}

// Source: Tang et al., "Top-nsigma: not all logits are you need", arXiv 2411.07641.
void TopNSigma(const StepInput& input, Candidates& candidates) {
  double n = input.params.top_n_sigma;
  if (n <= 0) return;
  const std::vector<Candidate>& list = candidates.List();
  double count = static_cast<double>(list.size());
  double sum = 0, squares = 0;
  for (const Candidate& c : list) sum += c.logit;
  double mean = sum / count;
  for (const Candidate& c : list) squares += (c.logit - mean) * (c.logit - mean);
  candidates.KeepWithin(n * std::sqrt(squares / count), 1);
}

void TopK(const StepInput& input, Candidates& candidates) {
  if (input.params.top_k > 0) candidates.KeepTop(static_cast<size_t>(input.params.top_k));
}

// Source: Holtzman et al., "The curious case of neural text degeneration", ICLR 2020.
void TopP(const StepInput& input, Candidates& candidates) {
  double p = input.params.top_p;
  if (p >= 1) return;
  size_t min_keep = static_cast<size_t>(input.params.min_keep);
  Softmax softmax = candidates.ComputeSoftmax();
  double sum = 0;
  size_t count = 0;
  candidates.VisitFromTop([&](const Candidate& c) {
    sum += softmax.Prob(c);
    ++count;
    return sum < p || count < min_keep;
  });
  candidates.KeepTop(count);
}

// Source: Nguyen et al., "Turning up the heat: min-p sampling", arXiv 2407.01082.
void MinP(const StepInput& input, Candidates& candidates) {
  double p = input.params.min_p;
  if (p <= 0) return;
  candidates.KeepWithin(-Log(p), static_cast<size_t>(input.params.min_keep));
}

// Source: Meister et al., "Locally typical sampling", TACL 2023.
void TypicalP(const StepInput& input, Candidates& candidates) {
  double p = input.params.typ_p;
  if (p >= 1) return;
  size_t min_keep = static_cast<size_t>(input.params.min_keep);
  candidates.List();
  Softmax softmax = candidates.ComputeSoftmax();
  double entropy = Entropy(candidates, softmax);
  // How far a token's surprise is from the expected one; tokens in that order, then by id.
  auto distance = [&](const Candidate& c) { return std::fabs(-softmax.LogProb(c) - entropy); };
  auto closer = [&](const Candidate& a, const Candidate& b) {
    double da = distance(a), db = distance(b);
    return da < db || (da == db && a.id < b.id);
  };
  double sum = 0;
  size_t count = 0;
  Candidate last{};
  VisitInOrder(candidates.OrderedCopy(), closer, [&](const Candidate& c) {
    sum += softmax.Prob(c);
    ++count;
    last = c;
    return sum <= p || count < min_keep;
  });
  std::erase_if(candidates.List(), [&](const Candidate& c) { return closer(last, c); });
}

// Removes all but the last of the tokens that reach the threshold. Source: the XTC sampler,
// github.com/oobabooga/text-generation-webui/pull/6335.
void Xtc(const StepInput& input, Candidates& candidates) {
  const SamplingParams& p = input.params;
  if (p.xtc_probability <= 0 || p.xtc_threshold > 0.5f || input.uniform > p.xtc_probability) return;
  Softmax softmax = candidates.ComputeSoftmax();
  size_t reaching = 0;
  Candidate last{};
  candidates.VisitFromTop([&](const Candidate& c) {
    if (softmax.Prob(c) < p.xtc_threshold) return false;
    last = c;
    ++reaching;
    return true;
  });
  std::vector<Candidate>& list = candidates.List();
  if (reaching < 2 || list.size() - (reaching - 1) < static_cast<size_t>(p.min_keep)) return;
  std::erase_if(list, [&](const Candidate& c) { return Before(c, last); });
}

void Temperature(const StepInput& input, Candidates& candidates) {
  const SamplingParams& p = input.params;
  if (p.dynatemp_range <= 0) return ScaleTemperature(candidates, p.temp);
  size_t size = candidates.List().size();
  if (size < 2) return;
  double entropy = Entropy(candidates, candidates.ComputeSoftmax());
  // Rounding may leave the entropy of a certain choice just below 0.
  double share = std::clamp(entropy / Log(static_cast<double>(size)), 0.0, 1.0);
  double low = std::max(0.0, static_cast<double>(p.temp) - p.dynatemp_range);
  double high = static_cast<double>(p.temp) + p.dynatemp_range;
  ScaleTemperature(candidates, low + (high - low) * Pow(share, p.dynatemp_exponent));
}

void NoStep(const StepInput&, Candidates&) {}

struct Row {
  Step step;
  bool penalty;
};
// Indexed by SamplerKind.
constexpr Row kSteps[kSamplerKinds] = {
    {Penalties, true}, {Dry, true},   {TopNSigma, false}, {TopK, false},        {TypicalP, false},
    {TopP, false},     {MinP, false}, {Xtc, false},       {Temperature, false}, {NoStep, false},
};

}  // namespace

Step StepOf(SamplerKind kind) { return kSteps[static_cast<size_t>(kind)].step; }
bool IsPenalty(SamplerKind kind) { return kSteps[static_cast<size_t>(kind)].penalty; }

void ScaleTemperature(Candidates& candidates, double temp) {
  float rounded = static_cast<float>(temp);
  if (rounded <= 0) return candidates.KeepTop(1);
  if (rounded != 1) candidates.Scale(rounded);
}

void TruncateMirostat1(Candidates& candidates, double mu, int64_t vocab_size) {
  constexpr size_t kFitted = 100;
  // s: the exponent of a Zipf law through the most probable tokens, by least squares.
  double products = 0, squares = 0, previous = 0;
  size_t rank = 0;
  candidates.VisitFromTop([&](const Candidate& c) {
    if (rank > 0) {
      double t = Log(static_cast<double>(rank + 1) / static_cast<double>(rank));
      products += t * (previous - c.logit);
      squares += t * t;
    }
    previous = c.logit;
    return ++rank < kFitted;
  });
  if (squares == 0) return;
  double s = products / squares;
  double epsilon = s - 1;
  double log_n = Log(static_cast<double>(vocab_size));
  // epsilon / (1 - n^-epsilon), which tends to 1 / log n.
  double ratio = std::fabs(epsilon) < 1e-9 ? 1 / log_n : epsilon / (1 - Exp(-epsilon * log_n));
  double k = Pow(ratio * Exp(mu * kLn2), 1 / s);
  double size = static_cast<double>(candidates.List().size());
  // NaN, from a flat distribution, keeps one like all that is below 1.
  candidates.KeepTop(k >= 1 ? static_cast<size_t>(std::min(k, size)) : 1);
}

void TruncateMirostat2(Candidates& candidates, double mu) {
  Softmax softmax = candidates.ComputeSoftmax();
  candidates.KeepWithin(mu * kLn2 - softmax.log_total, 1);
}

void TransformAdaptive(Candidates& candidates, double target) {
  constexpr double kWidth = 0.3, kPeak = 5, kSharpness = 10;
  candidates.List();
  Softmax softmax = candidates.ComputeSoftmax();
  for (Candidate& c : candidates.List()) {
    double distance = std::fabs((softmax.Prob(c) - target) / kWidth);
    c.logit = Saturate(kPeak - kSharpness * distance * distance / (1 + distance));
  }
}

}  // namespace lockstep::sampling
