// The tokens that may still be chosen, with their logits. Internal to the sampler.
//
// Two forms: at first the whole vocabulary, as an array of logits that is the caller's until a
// logit changes; after the first truncation a list. Either way the order is ascending id, and every
// sum runs in that order: nothing depends on how a selection algorithm shuffles. Ties between
// logits always go to the lower id.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/sampling_kernels.h"
#include "engine/sampling_math.h"

namespace lockstep::sampling {

struct Candidate {
  int32_t id;
  float logit;  // finite
};

// A changed logit: rounded to f32 and kept finite, so that no sequence of samplers reaches Inf -
// Inf.
inline float Saturate(double logit) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -kLargest, kLargest));
}

// Greater logits first, then lower ids: a total order.
inline bool Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Shows `items` to `visit` in the order of `less`, sorting only as much as is needed, until it
// returns false; then returns false. Reorders `items`. `less` must be a total order.
template <typename T, typename Less, typename Visit>
bool VisitInOrder(std::vector<T>& items, Less less, Visit visit) {
  constexpr size_t kFirstRun = 64, kGrowth = 8;
  size_t run = kFirstRun;
  for (size_t done = 0; done < items.size(); run *= kGrowth) {
    auto begin = items.begin() + static_cast<ptrdiff_t>(done);
    size_t count = std::min(run, items.size() - done);
    auto end = begin + static_cast<ptrdiff_t>(count);
    if (end != items.end()) std::nth_element(begin, end, items.end(), less);
    std::sort(begin, end, less);
    for (; begin != end; ++begin) {
      if (!visit(*begin)) return false;
    }
    done += count;
  }
  return true;
}

// Memory that is used again from token to token; holds nothing of meaning between calls.
struct Scratch {
  std::vector<float> values;
  std::vector<float> block_max;
  std::vector<float> selection;
  std::vector<float> sums;
  std::vector<Candidate> list;
  std::vector<Candidate> ordered;
};

// exp(logit - max) over the sum of the same.
struct Softmax {
  double max;
  double total;
  double log_total;
  double LogProb(const Candidate& c) const { return (c.logit - max) - log_total; }
  double Prob(const Candidate& c) const { return Exp(LogProb(c)); }
};

class Candidates {
 public:
  // All of `logits` above -Inf. Both `logits` and `scratch` must outlive the object.
  Candidates(std::span<const float> logits, const Kernels& kernels, Scratch& scratch);

  // False where a logit is NaN or +Inf: nothing else may be called then.
  bool legal() const { return legal_; }

  // Removes the tokens whose bit (i % 64 of word i / 64) is not set. Only in the first form.
  void Forbid(std::span<const uint64_t> mask);
  // Gives the candidates among `ids` (ascending, distinct, within the vocabulary) the logit
  // `change(i, old)`, i being the index in `ids`. A change to -Inf removes a candidate.
  template <typename Change>
  void Adjust(std::span<const int32_t> ids, Change change);
  // Divides every logit by `temp`, which must be positive.
  void Scale(float temp);

  // Keeps the `count` first in the order of Before(), where there are more; 0 keeps all.
  void KeepTop(size_t count);
  // Keeps the logits at most `distance` below the greatest, and the `min_keep` first in any case.
  void KeepWithin(double distance, size_t min_keep);

  // The candidates as a list in ascending id; may be empty.
  std::vector<Candidate>& List();
  // A copy of List() that may be reordered.
  std::vector<Candidate>& OrderedCopy();
  // Shows candidates in the order of Before() until `visit` returns false.
  template <typename Visit>
  void VisitFromTop(Visit visit);
  // The greatest logit; -Inf where there is no candidate.
  float Max() const;

  // In the first form the total has a relative error below 4e-6, in the second 1e-13.
  Softmax ComputeSoftmax();
  // The candidate whose interval of [0, 1), in ascending id, holds `uniform`. There must be one at
  // least; `softmax` is the result of ComputeSoftmax() just before.
  Candidate Pick(const Softmax& softmax, double uniform);

 private:
  std::span<float> OwnValues();
  // Calls the kernel `run(x, blocks, first_block)` for all blocks of the logits; the last is padded
  // with -Inf.
  template <typename Run>
  void ForBlocks(size_t first, size_t last, Run run) const;
  void ScanBlocks(size_t first, size_t last);
  // Appends the candidates whose logit is `wanted` to `out`, ascending id. Blocks whose greatest
  // logit does not `reach` are skipped: it must be monotone, and true wherever `wanted` is.
  template <typename Reach, typename Wanted>
  void CollectIf(Reach reach, Wanted wanted, std::vector<Candidate>& out) const;
  // The candidates with bound <= logit < above.
  void Collect(double bound, double above, std::vector<Candidate>& out) const;
  // A bound that at least `count` candidates reach, near the greatest such; -Inf where there are
  // too few blocks to say.
  float BoundForTop(size_t count);

  std::span<const float> logits_;  // of the first form
  const Kernels& kernels_;
  Scratch& scratch_;
  bool whole_ = true;  // the first form
  bool legal_ = true;
};

template <typename Change>
void Candidates::Adjust(std::span<const int32_t> ids, Change change) {
  auto changed = [&](size_t i, float old) {
    double logit = change(i, static_cast<double>(old));
    return logit == -kInfinity ? -std::numeric_limits<float>::infinity() : Saturate(logit);
  };
  if (whole_) {
    if (ids.empty()) return;
    std::span<float> values = OwnValues();
    for (size_t i = 0; i < ids.size(); ++i) {
      float& value = values[static_cast<size_t>(ids[i])];
      if (value != -std::numeric_limits<float>::infinity()) value = changed(i, value);
      size_t block = static_cast<size_t>(ids[i]) / kBlock;
      bool last_in_block = i + 1 == ids.size() || static_cast<size_t>(ids[i + 1]) / kBlock != block;
      if (last_in_block) ScanBlocks(block, block + 1);
    }
    return;
  }
  size_t i = 0;
  for (Candidate& c : scratch_.list) {
    while (i < ids.size() && ids[i] < c.id) ++i;
    if (i == ids.size()) break;
    if (ids[i] == c.id) c.logit = changed(i, c.logit);
  }
  std::erase_if(scratch_.list, [](const Candidate& c) { return c.logit == -kInfinity; });
}

template <typename Visit>
void Candidates::VisitFromTop(Visit visit) {
  constexpr size_t kFirstCount = 256, kGrowth = 8;
  double above = kInfinity;
  for (size_t count = kFirstCount; above > -kInfinity; count *= kGrowth) {
    double bound = whole_ ? BoundForTop(count) : -kInfinity;
    scratch_.ordered.clear();
    Collect(bound, above, scratch_.ordered);
    if (!VisitInOrder(scratch_.ordered, Before, visit)) return;
    above = bound;
  }
}

}  // namespace lockstep::sampling
