// The whole chain against a second implementation that sorts everything and uses the C library:
// slow, plain, and sharing nothing with the first but the random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "engine/random.h"
#include "engine/sampler.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

struct Item {
  int32_t id;
  float logit;
};
using Items = std::vector<Item>;  // ascending id

float Kept(double logit) {
  return static_cast<float>(std::clamp<double>(logit, -kLargest, kLargest));
}

// `nudge` moves every threshold a little: where that changes the outcome, rounding may too, and the
// case says nothing.
class Reference {
 public:
  Reference(const SamplingParams& params, const SampleInput& input, double nudge)
      : p_(params), input_(input), nudge_(nudge) {}

  Items Run(const SamplerState& state, uint64_t seed) {
    for (size_t i = 0; i < input_.logits.size(); ++i) {
      bool allowed = input_.mask.empty() || ((input_.mask[i / 64] >> (i % 64)) & 1);
      if (allowed && input_.logits[i] > -kInf)
        items_.push_back({static_cast<int32_t>(i), input_.logits[i]});
    }
    std::map<int64_t, double> biases;
    for (const LogitBias& b : p_.logit_bias) biases[b.token] += std::clamp(b.bias, -100.0f, 100.0f);
    for (Item& item : items_) {
      if (biases.count(item.id)) item.logit = Kept(item.logit + biases[item.id]);
    }
    if (p_.mirostat != 0) {
      RunMirostat(state);
      return items_;
    }
    for (size_t i = 0; i < p_.samplers.size(); ++i) {
      Apply(p_.samplers[i], UniformDraw(seed, input_.position, static_cast<uint32_t>(i + 1)));
    }
    if (p_.temp <= 0) KeepFirst(1);
    if (p_.temp > 0 && p_.adaptive_target >= 0 && Has(SamplerKind::kAdaptiveP)) Adapt(state);
    return items_;
  }

  // Not the logarithm of Probs(): far tokens have a probability of 0 and yet a surprise.
  std::vector<double> LogProbs() const {
    double max = -kInf, total = 0;
    for (const Item& item : items_) max = std::max<double>(max, item.logit);
    for (const Item& item : items_) total += std::exp(item.logit - max);
    std::vector<double> logprobs;
    for (const Item& item : items_) logprobs.push_back(item.logit - max - std::log(total));
    return logprobs;
  }
  std::vector<double> Probs() const {
    std::vector<double> probs = LogProbs();
    for (double& p : probs) p = std::exp(p);
    return probs;
  }

 private:
  bool Has(SamplerKind kind) const {
    return std::find(p_.samplers.begin(), p_.samplers.end(), kind) != p_.samplers.end();
  }

  // Indices from the greatest logit down, ties by id.
  std::vector<size_t> Descending() const {
    std::vector<size_t> order(items_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return items_[a].logit > items_[b].logit; });
    return order;
  }
  void Keep(const std::vector<size_t>& indices) {
    Items kept;
    for (size_t i : indices) kept.push_back(items_[i]);
    std::sort(kept.begin(), kept.end(), [](const Item& a, const Item& b) { return a.id < b.id; });
    items_ = kept;
  }
  void KeepFirst(size_t count) {
    std::vector<size_t> order = Descending();
    order.resize(std::min(order.size(), count));
    Keep(order);
  }
  size_t Least(size_t count) const {
    return std::min(items_.size(), std::max(count, static_cast<size_t>(p_.min_keep)));
  }
  double MaxLogit() const { return items_[Descending()[0]].logit; }
  double Entropy() const {
    double entropy = 0;
    for (double p : Probs()) entropy -= p > 0 ? p * std::log(p) : 0;
    return entropy;
  }
  void Divide(double temp) {
    float rounded = static_cast<float>(temp);
    if (rounded <= 0) return KeepFirst(1);
    for (Item& item : items_) item.logit = Kept(static_cast<double>(item.logit) / rounded);
  }

  void Apply(SamplerKind kind, double uniform) {
    bool penalty = kind == SamplerKind::kPenalties || kind == SamplerKind::kDry;
    if (items_.empty() || (p_.temp <= 0 && !penalty)) return;
    switch (kind) {
      case SamplerKind::kPenalties:
        return Penalize();
      case SamplerKind::kDry:
        return Dry();
      case SamplerKind::kTopNSigma:
        return TopNSigma();
      case SamplerKind::kTopK:
        return p_.top_k > 0 ? KeepFirst(static_cast<size_t>(p_.top_k)) : void();
      case SamplerKind::kTypicalP:
        return TypicalP();
      case SamplerKind::kTopP:
        return TopP();
      case SamplerKind::kMinP:
        return MinP();
      case SamplerKind::kXtc:
        return Xtc(uniform);
      case SamplerKind::kTemperature:
        return Temperature();
      case SamplerKind::kAdaptiveP:
        return;
    }
  }

  std::vector<int32_t> Window(int32_t count) const {
    size_t n = input_.history.size();
    size_t size = count < 0 ? n : std::min<size_t>(n, static_cast<size_t>(count));
    return {input_.history.end() - static_cast<ptrdiff_t>(size), input_.history.end()};
  }
  void Penalize() {
    std::map<int32_t, int> counts;
    for (int32_t id : Window(p_.penalty_last_n)) ++counts[id];
    for (Item& item : items_) {
      if (!counts.count(item.id)) continue;
      double logit = item.logit;
      double scaled = logit <= 0 ? logit * p_.penalty_repeat : logit / p_.penalty_repeat;
      double freq = p_.penalty_freq, present = p_.penalty_present;
      item.logit = Kept(scaled - (counts[item.id] * freq + present));
    }
  }
  void Dry() {
    if (p_.dry_multiplier == 0 || p_.dry_base < 1) return;
    std::vector<int32_t> w = Window(p_.dry_penalty_last_n);
    int n = static_cast<int>(w.size());
    if (n <= p_.dry_allowed_length) return;
    std::map<int32_t, int> longest;
    for (int next = 1; next < n; ++next) {
      int length = 0;
      while (length < next && w[next - 1 - length] == w[n - 1 - length]) ++length;
      if (length >= p_.dry_allowed_length) longest[w[next]] = std::max(longest[w[next]], length);
    }
    for (Item& item : items_) {
      if (!longest.count(item.id)) continue;
      int excess = longest[item.id] - p_.dry_allowed_length;
      double penalty = p_.dry_multiplier * std::pow(static_cast<double>(p_.dry_base), excess);
      item.logit = Kept(item.logit - std::min<double>(penalty, kLargest));
    }
  }
  void TopNSigma() {
    if (p_.top_n_sigma <= 0 || items_.size() < 2) return;
    double mean = 0, variance = 0;
    for (const Item& item : items_) mean += item.logit / static_cast<double>(items_.size());
    for (const Item& item : items_) {
      variance += (item.logit - mean) * (item.logit - mean) / static_cast<double>(items_.size());
    }
    KeepNear((p_.top_n_sigma + nudge_) * std::sqrt(variance), 1);
  }
  void KeepNear(double distance, size_t least) {
    size_t count = 0;
    double max = MaxLogit();
    for (const Item& item : items_) count += max - item.logit <= distance;
    KeepFirst(std::max(count, least));
  }
  void MinP() {
    if (p_.min_p > 0) KeepNear(-std::log(p_.min_p) + nudge_, Least(1));
  }
  void TopP() {
    if (p_.top_p >= 1) return;
    std::vector<double> probs = Probs();
    double sum = 0;
    size_t count = 0;
    for (size_t i : Descending()) {
      sum += probs[i];
      ++count;
      if (sum >= p_.top_p + nudge_) break;
    }
    KeepFirst(Least(count));
  }
  void TypicalP() {
    if (p_.typ_p >= 1) return;
    std::vector<double> probs = Probs(), logprobs = LogProbs();
    double entropy = Entropy();
    std::vector<size_t> order(items_.size());
    std::iota(order.begin(), order.end(), 0);
    auto distance = [&](size_t i) { return std::fabs(-logprobs[i] - entropy); };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return distance(a) < distance(b); });
    double sum = 0;
    size_t count = 0;
    while (count < order.size()) {
      sum += probs[order[count++]];
      if (sum > p_.typ_p + nudge_) break;
    }
    order.resize(Least(count));
    Keep(order);
  }
  void Xtc(double uniform) {
    if (p_.xtc_probability <= 0 || p_.xtc_threshold > 0.5f || uniform > p_.xtc_probability) return;
    std::vector<double> probs = Probs();
    std::vector<size_t> order = Descending();
    size_t reaching = 0;
    while (reaching < order.size() && probs[order[reaching]] >= p_.xtc_threshold + nudge_)
      ++reaching;
    if (reaching < 2 || order.size() - reaching + 1 < static_cast<size_t>(p_.min_keep)) return;
    order.erase(order.begin(), order.begin() + static_cast<ptrdiff_t>(reaching - 1));
    Keep(order);
  }
  void Temperature() {
    if (p_.dynatemp_range <= 0) return Divide(p_.temp);
    if (items_.size() < 2) return;
    double share = std::clamp(Entropy() / std::log(static_cast<double>(items_.size())), 0.0, 1.0);
    double low = std::max(0.0, double{p_.temp} - p_.dynatemp_range),
           high = double{p_.temp} + p_.dynatemp_range;
    Divide(low + (high - low) * std::pow(share, p_.dynatemp_exponent));
  }
  void RunMirostat(const SamplerState& state) {
    if (p_.temp <= 0) return KeepFirst(1);
    Divide(p_.temp);
    std::vector<double> probs = Probs();
    if (p_.mirostat == 2) {
      size_t count = 0;
      for (double p : probs) count += -std::log2(p) <= state.mirostat_mu + nudge_;
      return KeepFirst(std::max<size_t>(count, 1));
    }
    if (items_.size() < 2) return;
    std::vector<size_t> order = Descending();
    double products = 0, squares = 0;
    for (size_t i = 0; i + 1 < order.size() && i < 99; ++i) {
      double t = std::log((i + 2.0) / (i + 1.0));
      products += t * (double{items_[order[i]].logit} - items_[order[i + 1]].logit);
      squares += t * t;
    }
    double s = products / squares, epsilon = s - 1;
    double n = static_cast<double>(input_.logits.size());
    double k =
        std::pow(epsilon * std::exp2(state.mirostat_mu) / (1 - std::pow(n, -epsilon)), 1 / s);
    k *= 1 + nudge_;
    KeepFirst(k >= 1 ? static_cast<size_t>(std::min(k, 1e9)) : 1);
  }
  void Adapt(const SamplerState& state) {
    double target = 2 * double{p_.adaptive_target} - state.adaptive_sum / state.adaptive_weight;
    target = std::clamp(target, 0.0, 1.0);
    std::vector<double> probs = Probs();
    for (size_t i = 0; i < items_.size(); ++i) {
      double d = std::fabs(probs[i] - target) / 0.3;
      items_[i].logit = Kept(5 - 10 * d * d / (1 + d));
    }
  }

  const SamplingParams& p_;
  const SampleInput& input_;
  double nudge_;
  Items items_;
};

using Random = std::mt19937;

// Hostile and ordinary rows of logits.
std::vector<float> MakeLogits(int kind, size_t size, Random& random) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& logit : logits) {
    float x = normal(random);
    switch (kind) {
      case 0:
        logit = x;
        break;
      case 1:
        logit = std::round(x);
        break;  // ties
      case 2:
        logit = 1.5f;
        break;  // all equal
      case 3:
        logit = x - 30;
        break;  // one dominates: below
      case 4:
        logit = random() % 3 == 0 ? -kInf : x;
        break;  // forbidden
      case 5:
        logit = random() % 2 ? x * 1e30f : x;
        break;  // huge
      case 6:
        logit = static_cast<float>(random() % 5) * 1e-44f;
        break;  // denormals
      default:
        logit = random() % 4 ? -kLargest : kLargest;
        break;  // the ends of the range
    }
  }
  if (kind == 3) logits[random() % size] = 30;
  if (kind == 4) logits[random() % size] = 0;
  return logits;
}
constexpr int kLogitKinds = 8;

SamplingParams MakeParams(Random& random, size_t vocab) {
  auto real = [&](double low, double high) {
    return static_cast<float>(std::uniform_real_distribution<double>(low, high)(random));
  };
  auto sometimes = [&] { return random() % 3 == 0; };
  SamplingParams p;
  p.seed = static_cast<int64_t>(random() % 1000);
  p.samplers.clear();
  for (size_t n = random() % 12; n > 0; --n)
    p.samplers.push_back(static_cast<SamplerKind>(random() % kSamplerKinds));
  p.temp = random() % 8 == 0 ? -real(0, 1) : real(0.1, 2);
  if (sometimes()) p.dynatemp_range = real(0, 2), p.dynatemp_exponent = real(0, 3);
  p.top_k = static_cast<int32_t>(random() % 60) - 1;
  p.top_p = real(0, 1.2) > 1 ? 1 : real(0, 1);
  p.min_p = real(0, 0.3);
  if (sometimes()) p.typ_p = real(0, 1);
  if (sometimes()) p.top_n_sigma = real(0.1, 3);
  if (sometimes()) p.xtc_probability = real(0, 1), p.xtc_threshold = real(0, 0.6);
  if (sometimes()) p.min_keep = static_cast<int32_t>(random() % 10);
  p.penalty_last_n = static_cast<int32_t>(random() % 80) - 1;
  if (sometimes())
    p.penalty_repeat = real(0.5, 2), p.penalty_freq = real(-1, 1), p.penalty_present = real(-1, 1);
  if (sometimes()) p.dry_multiplier = real(0, 2), p.dry_base = real(0.9, 3);
  p.dry_allowed_length = static_cast<int32_t>(random() % 4);
  if (random() % 5 == 0) p.mirostat = 1 + static_cast<int32_t>(random() % 2);
  if (sometimes()) p.adaptive_target = real(0, 1);
  for (size_t n = sometimes() ? random() % 20 : 0; n > 0; --n) {
    p.logit_bias.push_back({static_cast<int64_t>(random() % vocab), real(-120, 120)});
  }
  if (p.logit_bias.size() > vocab) p.logit_bias.resize(vocab);
  return p;
}

struct Case {
  SamplingParams params;
  std::vector<float> logits;
  std::vector<int32_t> history;
  std::vector<uint64_t> mask;
  int64_t position;
};

Case MakeCase(Random& random) {
  constexpr size_t kSizes[] = {1, 2, 7, 127, 128, 129, 1000, 5000, 40000};
  size_t vocab = kSizes[random() % std::size(kSizes)];
  if (vocab == 40000 && random() % 4) vocab = 300;
  Case c{MakeParams(random, vocab),
         MakeLogits(static_cast<int>(random() % kLogitKinds), vocab, random),
         {},
         {},
         static_cast<int64_t>(random())};
  c.history.resize(random() % 100);
  for (int32_t& id : c.history) id = static_cast<int32_t>(random() % (vocab < 20 ? vocab : 20));
  if (random() % 5 == 0) {
    c.mask.resize((vocab + 63) / 64);
    for (uint64_t& word : c.mask)
      word = random() % 3 ? random() | uint64_t{random()} << 32 : ~uint64_t{0};
    for (size_t i = 0; i < vocab; ++i) {  // one legal token at least
      if (c.logits[i] > -kInf) c.mask[i / 64] |= uint64_t{1} << (i % 64);
      if (c.logits[i] > -kInf) break;
    }
  }
  return c;
}

bool SameIds(const Items& a, const Items& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Item& x, const Item& y) { return x.id == y.id; });
}

// Probabilities under which neither implementation is asked to agree: exp may be 0 in one of them.
constexpr double kLeastProb = 1e-290;

void ExpectDistribution(const std::vector<TokenLogProb>& found, const Items& items,
                        const std::vector<double>& probs) {
  std::map<int32_t, double> logprobs;
  for (const TokenLogProb& t : found) logprobs[t.token] = t.logprob;
  for (size_t i = 0; i < items.size(); ++i) {
    if (probs[i] < kLeastProb) continue;
    ASSERT_TRUE(logprobs.count(items[i].id))
        << "token " << items[i].id << " of probability " << probs[i];
    double expected = std::log(probs[i]);
    ASSERT_NEAR(logprobs[items[i].id], expected, 1e-4 + 1e-5 * std::fabs(expected));
    logprobs.erase(items[i].id);
  }
  for (auto [id, logprob] : logprobs) ASSERT_LT(logprob, std::log(kLeastProb) + 1) << id;
}

TEST(SamplerReference, AgreesOnRandomChainsAndHostileLogits) {
  Random random(11);
  int compared = 0, borderline = 0;
  for (int round = 0; round < 4000; ++round) {
    Case c = MakeCase(random);
    SCOPED_TRACE(round);
    Sampler sampler = Sampler::Create(c.params, static_cast<int64_t>(c.logits.size())).value();
    SampleInput input{c.logits, c.history, c.position, c.mask};
    SamplerState state = sampler.InitialState();
    Reference reference(c.params, input, 0);
    Items items = reference.Run(state, sampler.seed());
    bool steady = true;
    for (double nudge : {-2e-5, 2e-5}) {
      steady =
          steady && SameIds(items, Reference(c.params, input, nudge).Run(state, sampler.seed()));
    }
    auto distribution = sampler.Distribution(input, state);
    ASSERT_TRUE(distribution.ok()) << distribution.error().what();
    auto draw = sampler.Sample(input, state);
    ASSERT_TRUE(draw.ok()) << draw.error().what();
    if (!steady) {
      ++borderline;
      continue;
    }
    ++compared;
    std::vector<double> probs = reference.Probs();
    ExpectDistribution(*distribution, items, probs);
    if (HasFatalFailure()) return;
    // The token's interval holds the random number, but for rounding.
    double u = UniformDraw(sampler.seed(), c.position, 0), low = 0;
    size_t i = 0;
    while (i < items.size() && items[i].id != draw->token) low += probs[i++];
    ASSERT_LT(i, items.size()) << "token " << draw->token << " was not to be chosen";
    EXPECT_GE(u, low - 1e-4);
    EXPECT_LE(u, low + probs[i] + 1e-4);
  }
  EXPECT_GT(compared, 3000) << borderline << " borderline";
}

TEST(SamplerReference, LogProbsAreThoseOfTheRawLogits) {
  Random random(12);
  for (int round = 0; round < 500; ++round) {
    Case c = MakeCase(random);
    c.params.n_probs = static_cast<int32_t>(random() % 30);
    Sampler sampler = Sampler::Create(c.params, static_cast<int64_t>(c.logits.size())).value();
    SamplerState state = sampler.InitialState();
    TokenDraw draw = sampler.Sample({c.logits, c.history, c.position, c.mask}, state).value();

    SamplingParams plain;
    plain.samplers.clear();
    SampleInput raw{c.logits, {}, 0, {}};
    Reference reference(plain, raw, 0);
    Items items = reference.Run({}, 0);
    std::vector<double> probs = reference.Probs();
    std::map<int32_t, double> expected;
    for (size_t i = 0; i < items.size(); ++i) expected[items[i].id] = probs[i];
    auto check = [&](int32_t token, double logprob) {
      if (expected[token] < kLeastProb) return;
      EXPECT_NEAR(logprob, std::log(expected[token]), 4e-6) << round;
    };
    check(draw.token, draw.logprob);
    std::stable_sort(items.begin(), items.end(),
                     [](const Item& a, const Item& b) { return a.logit > b.logit; });
    ASSERT_EQ(draw.top.size(), std::min(items.size(), static_cast<size_t>(c.params.n_probs)));
    for (size_t i = 0; i < draw.top.size(); ++i) {
      EXPECT_EQ(draw.top[i].token, items[i].id);
      check(draw.top[i].token, draw.top[i].logprob);
    }
  }
}

}  // namespace
}  // namespace lockstep
