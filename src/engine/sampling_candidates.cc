#include "engine/sampling_candidates.h"

#include <functional>

namespace lockstep {

#define LOCKSTEP_DECLARE(isa, enumerator)                                      \
  namespace isa {                                                              \
  bool SamplingBlockMax(const float* x, size_t blocks, float* max);            \
  void SamplingExpSums(const float* x, size_t blocks, float max, float* sums); \
  }
LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

namespace sampling {
namespace {
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();
}  // namespace

const Kernels& KernelsFor(Isa isa) {
#define LOCKSTEP_ROW(isa, enumerator) \
  {Isa::enumerator, {isa::SamplingBlockMax, isa::SamplingExpSums}},
  static constexpr struct {
    Isa isa;
    Kernels kernels;
  } kTable[] = {LOCKSTEP_FOR_EACH_ISA(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW
  for (const auto& row : kTable) {
    if (row.isa == isa) return row.kernels;
  }
  return kTable[0].kernels;
}

Candidates::Candidates(std::span<const float> logits, const Kernels& kernels, Scratch& scratch)
    : logits_(logits), kernels_(kernels), scratch_(scratch) {
  scratch_.list.clear();
  scratch_.block_max.resize((logits.size() + kBlock - 1) / kBlock);
  ScanBlocks(0, scratch_.block_max.size());
}

template <typename Run>
void Candidates::ForBlocks(size_t first, size_t last, Run run) const {
  size_t full = std::min(last, logits_.size() / kBlock);
  if (first < full) run(&logits_[first * kBlock], full - first, first);
  if (full == last) return;
  float padded[kBlock];
  std::fill(padded, padded + kBlock, kNoLogit);
  std::copy(logits_.begin() + static_cast<ptrdiff_t>(full * kBlock), logits_.end(), padded);
  run(padded, 1, full);
}

void Candidates::ScanBlocks(size_t first, size_t last) {
  ForBlocks(first, last, [&](const float* x, size_t blocks, size_t at) {
    if (!kernels_.block_max(x, blocks, &scratch_.block_max[at])) legal_ = false;
  });
}

std::span<float> Candidates::OwnValues() {
  if (logits_.data() != scratch_.values.data()) {
    scratch_.values.assign(logits_.begin(), logits_.end());
    logits_ = scratch_.values;
  }
  return scratch_.values;
}

void Candidates::Forbid(std::span<const uint64_t> mask) {
  constexpr size_t kWord = 64;
  std::span<float> values = OwnValues();
  for (size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == ~uint64_t{0}) continue;
    size_t end = std::min(kWord, values.size() - word * kWord);
    for (size_t bit = 0; bit < end; ++bit) {
      float& value = values[word * kWord + bit];
      value = (mask[word] >> bit) & 1 ? value : kNoLogit;
    }
  }
  ScanBlocks(0, scratch_.block_max.size());
}

void Candidates::Scale(float temp) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  auto scaled = [&](float logit) {
    float quotient = logit / temp;
    quotient = quotient < kLargest ? quotient : kLargest;
    quotient = quotient > -kLargest ? quotient : -kLargest;
    return logit == kNoLogit ? logit : quotient;
  };
  if (whole_) {
    for (float& value : OwnValues()) value = scaled(value);
    for (float& max : scratch_.block_max) max = scaled(max);
  } else {
    for (Candidate& c : scratch_.list) c.logit = scaled(c.logit);
  }
}

template <typename Reach, typename Wanted>
void Candidates::CollectIf(Reach reach, Wanted wanted, std::vector<Candidate>& out) const {
  if (!whole_) {
    std::copy_if(scratch_.list.begin(), scratch_.list.end(), std::back_inserter(out),
                 [&](const Candidate& c) { return wanted(c.logit); });
    return;
  }
  for (size_t block = 0; block < scratch_.block_max.size(); ++block) {
    if (!reach(scratch_.block_max[block])) continue;
    size_t end = std::min((block + 1) * kBlock, logits_.size());
    for (size_t id = block * kBlock; id < end; ++id) {
      float logit = logits_[id];
      if (logit > kNoLogit && wanted(logit)) out.push_back({static_cast<int32_t>(id), logit});
    }
  }
}

void Candidates::Collect(double bound, double above, std::vector<Candidate>& out) const {
  CollectIf([&](float logit) { return logit >= bound; },
            [&](float logit) { return logit >= bound && logit < above; }, out);
}

float Candidates::BoundForTop(size_t count) {
  std::vector<float>& maxima = scratch_.selection;
  if (count > scratch_.block_max.size()) return kNoLogit;
  maxima = scratch_.block_max;
  auto nth = maxima.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<float>());
  return *nth;
}

std::vector<Candidate>& Candidates::List() {
  if (whole_) Collect(-kInfinity, kInfinity, scratch_.list);
  whole_ = false;
  return scratch_.list;
}

std::vector<Candidate>& Candidates::OrderedCopy() {
  scratch_.ordered = List();
  return scratch_.ordered;
}

void Candidates::KeepTop(size_t count) {
  if (count == 0) return;
  if (whole_) Collect(BoundForTop(count), kInfinity, scratch_.list);
  whole_ = false;
  std::vector<Candidate>& list = scratch_.list;
  if (list.size() <= count) return;
  std::vector<Candidate>& order = OrderedCopy();
  auto last = order.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(order.begin(), last, order.end(), Before);
  Candidate cut = *last;
  std::erase_if(list, [&](const Candidate& c) { return Before(cut, c); });
}

void Candidates::KeepWithin(double distance, size_t min_keep) {
  // Not a bound of max - distance: beside a huge maximum that would be rounded away.
  double max = Max();
  auto near = [&](float logit) { return max - logit <= distance; };
  std::vector<Candidate>& kept = scratch_.ordered;
  kept.clear();
  CollectIf(near, near, kept);
  if (kept.size() < min_keep) return KeepTop(min_keep);
  scratch_.list = kept;
  whole_ = false;
}

float Candidates::Max() const {
  float max = kNoLogit;
  if (whole_) {
    for (float block : scratch_.block_max) max = std::max(max, block);
  } else {
    for (const Candidate& c : scratch_.list) max = std::max(max, c.logit);
  }
  return max;
}

Softmax Candidates::ComputeSoftmax() {
  float max = Max();
  double total = 0;
  if (max == kNoLogit) return {max, total, Log(total)};
  if (whole_) {
    scratch_.sums.resize(scratch_.block_max.size());
    ForBlocks(0, scratch_.sums.size(), [&](const float* x, size_t blocks, size_t at) {
      kernels_.exp_sums(x, blocks, max, &scratch_.sums[at]);
    });
    for (float sum : scratch_.sums) total += sum;
  } else {
    for (const Candidate& c : scratch_.list) total += Exp(static_cast<double>(c.logit) - max);
  }
  return {max, total, Log(total)};
}

Candidate Candidates::Pick(const Softmax& softmax, double uniform) {
  double target = uniform * softmax.total;
  double sum = 0;
  Candidate picked{-1, 0};
  // True at the candidate that passes the target; one of no probability cannot be picked.
  auto passes = [&](const Candidate& c) {
    double weight = Exp(c.logit - softmax.max);
    if (weight <= 0) return false;
    picked = c;
    sum += weight;
    return target < sum;
  };
  if (!whole_) {
    for (const Candidate& c : scratch_.list) {
      if (passes(c)) break;
    }
    return picked;
  }
  double before = 0;
  for (size_t block = 0; block < scratch_.sums.size(); before += scratch_.sums[block++]) {
    if (!(target < before + scratch_.sums[block])) continue;
    sum = before;
    size_t end = std::min((block + 1) * kBlock, logits_.size());
    for (size_t id = block * kBlock; id < end; ++id) {
      if (passes({static_cast<int32_t>(id), logits_[id]})) return picked;
    }
    // The block's own sum was rounded up past the target: its last candidate stands, where it has
    // one.
    if (picked.id >= 0) return picked;
  }
  if (picked.id < 0) {
    VisitFromTop([&](const Candidate& c) {
      picked = c;
      return false;
    });
  }
  return picked;
}

}  // namespace sampling
}  // namespace lockstep
