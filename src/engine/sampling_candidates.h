// The tokens that may still be chosen, with their logits. Internal to the sampler.
//
// Two forms: at first the whole vocabulary, as the caller's logits and a few changed values beside them; after the
// first truncation a list. Either way the order is ascending id, and every sum runs in that order: nothing depends on
// how a selection algorithm shuffles. Ties between logits always go to the lower id.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampling_math.h"

namespace lockstep::sampling {

struct Candidate {
  int32_t id;
  double logit;  // above -Inf, magnitude at most kMaxLogit
};

// Logits are kept in this range, so that no sequence of samplers reaches Inf - Inf.
inline constexpr double kMaxLogit = 1e300;
inline double Saturate(double logit) { return std::clamp(logit, -kMaxLogit, kMaxLogit); }

// Greater logits first, then lower ids: a total order.
inline bool Before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Shows `items` to `visit` in the order of `less`, sorting only as much as is needed, until it returns false.
// Reorders `items`. `less` must be a total order.
template <typename T, typename Less, typename Visit>
void VisitInOrder(std::vector<T>& items, Less less, Visit visit) {
  constexpr size_t kFirstRun = 64, kGrowth = 8;
  size_t run = kFirstRun;
  for (size_t done = 0; done < items.size(); run *= kGrowth) {
    auto begin = items.begin() + static_cast<ptrdiff_t>(done);
    size_t count = std::min(run, items.size() - done);
    auto end = begin + static_cast<ptrdiff_t>(count);
    if (end != items.end()) std::nth_element(begin, end, items.end(), less);
    std::sort(begin, end, less);
    for (; begin != end; ++begin) {
      if (!visit(*begin)) return;
    }
    done += count;
  }
}

// The greatest logit of every kBlock tokens: what lets a selection skip nearly all of a vocabulary.
inline constexpr size_t kBlock = 128;
struct LogitScan {
  bool legal;  // no NaN, no +Inf
  float max;
};
LogitScan ScanLogits(std::span<const float> logits, std::vector<float>& block_max);

// Sum of exp(logit - max) over the vocabulary, max being the greatest logit; relative error below 2e-6 (f32 terms,
// 16 strided lanes, f64 between runs of 256).
double SumOfExp(std::span<const float> logits, float max);

// Memory that is used again from token to token; holds nothing of meaning between calls.
struct Scratch {
  std::vector<float> masked;
  std::vector<float> block_max;
  std::vector<float> selection;
  std::vector<Candidate> list;
  std::vector<Candidate> edits;
  std::vector<Candidate> ordered;
};

class Candidates {
 public:
  // All of `logits` above -Inf; scratch.block_max is that of ScanLogits() for them. Both must outlive the object.
  Candidates(std::span<const float> logits, Scratch& scratch);

  // Gives the candidates among `ids` (ascending, distinct, within the vocabulary) the logit `change(i, old)`, i being
  // the index in `ids`. A change to -Inf removes a candidate.
  template <typename Change>
  void Adjust(std::span<const int32_t> ids, Change change);

  // The candidates as a list in ascending id; may be empty.
  std::vector<Candidate>& List();

  // Keeps the `count` first in the order of Before(), where there are more.
  void KeepTop(size_t count);
  // Keeps the logits of at least `bound`, and the `min_keep` first in any case.
  void KeepAtLeast(double bound, size_t min_keep);
  // The greatest logit; -Inf where there is no candidate.
  double Max();

  // A copy of List() that may be reordered.
  std::vector<Candidate>& OrderedCopy();

 private:
  void AddEdits(std::span<const int32_t> ids);
  // Appends the candidates of logit >= bound to `out`, ascending id.
  void Collect(double bound, std::vector<Candidate>& out) const;
  // A bound that at least `count` candidates reach, -Inf where only all do; close to the greatest one.
  double BoundForTop(size_t count);

  std::span<const float> logits_;
  Scratch& scratch_;
  bool whole_ = true;  // the first form
};

template <typename Change>
void Candidates::Adjust(std::span<const int32_t> ids, Change change) {
  if (whole_) AddEdits(ids);
  std::vector<Candidate>& values = whole_ ? scratch_.edits : scratch_.list;
  size_t i = 0;
  for (Candidate& value : values) {
    while (i < ids.size() && ids[i] < value.id) ++i;
    if (i == ids.size()) break;
    if (ids[i] != value.id || value.logit == -kInfinity) continue;
    double logit = change(i, value.logit);
    value.logit = logit == -kInfinity ? logit : Saturate(logit);
  }
  if (!whole_) std::erase_if(values, [](const Candidate& c) { return c.logit == -kInfinity; });
}

}  // namespace lockstep::sampling
