#include "engine/sampling_candidates.h"

#include <bit>
#include <functional>
#include <limits>

namespace lockstep::sampling {
namespace {

constexpr size_t kLanes = 16;
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

// `count` is a multiple of kLanes.
float BlockMax(const float* x, size_t count, uint32_t& illegal) {
  float max[kLanes];
  uint32_t bad[kLanes] = {};
  std::fill(max, max + kLanes, kNoLogit);
  for (size_t j = 0; j < count; j += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) {
      float v = x[j + i];
      max[i] = v > max[i] ? v : max[i];
      // False for -Inf, true for NaN and +Inf.
      bad[i] |= !(v <= std::numeric_limits<float>::max());
    }
  }
  for (size_t step = kLanes / 2; step > 0; step /= 2) {
    for (size_t i = 0; i < step; ++i) {
      max[i] = max[i + step] > max[i] ? max[i + step] : max[i];
      bad[i] |= bad[i + step];
    }
  }
  illegal |= bad[0];
  return max[0];
}

// Adds exp(x[j + i] - max) to sum[i]: 2^y with y split in an integer, which goes to the exponent, and the rest in
// [-1/2, 1/2], for which the polynomial's relative error is below 1e-7. Terms stop at 2^-126.
void AddExp(const float* x, size_t count, float max, float* sum) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kRound = 0x1.8p23f;
  constexpr float kC1 = 0.6931470036506653f, kC2 = 0.24022242426872253f, kC3 = 0.05550733581185341f,
                  kC4 = 0.009671513922512531f, kC5 = 0.0013264731969684362f;
  for (size_t j = 0; j < count; j += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) {
      float y = (x[j + i] - max) * kLog2E;
      y = y > -126.0f ? y : -126.0f;
      float shifted = y + kRound;
      float f = y - (shifted - kRound);
      float p = ((((kC5 * f + kC4) * f + kC3) * f + kC2) * f + kC1) * f + 1.0f;
      // The low bits of `shifted` are the integer part.
      uint32_t bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
      sum[i] += std::bit_cast<float>(bits);
    }
  }
}

double SumOfRun(const float* x, size_t count, float max) {
  float lanes[kLanes] = {};
  AddExp(x, count, max, lanes);
  double sum[kLanes];
  std::copy(lanes, lanes + kLanes, sum);
  for (size_t step = kLanes / 2; step > 0; step /= 2) {
    for (size_t i = 0; i < step; ++i) sum[i] += sum[i + step];
  }
  return sum[0];
}

}  // namespace

LogitScan ScanLogits(std::span<const float> logits, std::vector<float>& block_max) {
  block_max.clear();
  uint32_t illegal = 0;
  float max = kNoLogit;
  size_t whole = logits.size() / kBlock * kBlock;
  for (size_t i = 0; i < whole; i += kBlock) {
    block_max.push_back(BlockMax(&logits[i], kBlock, illegal));
    max = std::max(max, block_max.back());
  }
  if (whole < logits.size()) {
    float rest[kBlock];
    std::fill(rest, rest + kBlock, kNoLogit);
    std::copy(logits.begin() + static_cast<ptrdiff_t>(whole), logits.end(), rest);
    block_max.push_back(BlockMax(rest, kBlock, illegal));
    max = std::max(max, block_max.back());
  }
  return {illegal == 0, max};
}

double SumOfExp(std::span<const float> logits, float max) {
  constexpr size_t kRun = 256;
  double sum = 0;
  size_t whole = logits.size() / kRun * kRun;
  for (size_t i = 0; i < whole; i += kRun) sum += SumOfRun(&logits[i], kRun, max);
  if (whole < logits.size()) {
    float rest[kRun];
    std::fill(rest, rest + kRun, kNoLogit);
    std::copy(logits.begin() + static_cast<ptrdiff_t>(whole), logits.end(), rest);
    sum += SumOfRun(rest, kRun, max);
  }
  return sum;
}

Candidates::Candidates(std::span<const float> logits, Scratch& scratch)
    : logits_(logits), scratch_(scratch) {
  scratch_.edits.clear();
  scratch_.list.clear();
}

void Candidates::AddEdits(std::span<const int32_t> ids) {
  std::vector<Candidate>& edits = scratch_.edits;
  size_t known = edits.size();
  size_t i = 0;
  for (int32_t id : ids) {
    while (i < known && edits[i].id < id) ++i;
    if (i == known || edits[i].id != id) edits.push_back({id, logits_[static_cast<size_t>(id)]});
  }
  std::inplace_merge(edits.begin(), edits.begin() + static_cast<ptrdiff_t>(known), edits.end(),
                     [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

void Candidates::Collect(double bound, std::vector<Candidate>& out) const {
  auto edit = scratch_.edits.begin();
  auto add = [&](size_t id, double logit) {
    if (logit >= bound && logit > -kInfinity) out.push_back({static_cast<int32_t>(id), logit});
  };
  for (size_t block = 0; block < scratch_.block_max.size(); ++block) {
    size_t id = block * kBlock;
    size_t end = std::min(id + kBlock, logits_.size());
    bool reaches = scratch_.block_max[block] >= bound;
    for (; edit != scratch_.edits.end() && static_cast<size_t>(edit->id) < end; ++edit) {
      size_t edited = static_cast<size_t>(edit->id);
      for (; reaches && id < edited; ++id) add(id, logits_[id]);
      add(edited, edit->logit);
      id = edited + 1;
    }
    for (; reaches && id < end; ++id) add(id, logits_[id]);
  }
}

double Candidates::BoundForTop(size_t count) {
  // Changed values do not count, so that many more blocks may be needed.
  size_t blocks = count + scratch_.edits.size();
  if (blocks > scratch_.block_max.size()) return -kInfinity;
  std::vector<float>& maxima = scratch_.selection;
  maxima = scratch_.block_max;
  auto nth = maxima.begin() + static_cast<ptrdiff_t>(blocks - 1);
  std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<float>());
  return *nth;
}

std::vector<Candidate>& Candidates::List() {
  if (whole_) {
    Collect(-kInfinity, scratch_.list);
    whole_ = false;
  }
  return scratch_.list;
}

void Candidates::KeepTop(size_t count) {
  if (count == 0) return;
  if (whole_) {
    Collect(BoundForTop(count), scratch_.list);
    whole_ = false;
  }
  std::vector<Candidate>& list = scratch_.list;
  if (list.size() <= count) return;
  std::vector<Candidate>& order = OrderedCopy();
  auto last = order.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(order.begin(), last, order.end(), Before);
  Candidate cut = *last;
  std::erase_if(list, [&](const Candidate& c) { return Before(cut, c); });
}

void Candidates::KeepAtLeast(double bound, size_t min_keep) {
  if (whole_) {
    Collect(bound, scratch_.list);
    if (scratch_.list.size() < min_keep) {
      scratch_.list.clear();
      KeepTop(min_keep);
    }
    whole_ = false;
    return;
  }
  auto reaches = [&](const Candidate& c) { return c.logit >= bound; };
  std::vector<Candidate>& list = scratch_.list;
  if (static_cast<size_t>(std::count_if(list.begin(), list.end(), reaches)) < min_keep) {
    KeepTop(min_keep);
  } else {
    std::erase_if(list, std::not_fn(reaches));
  }
}

double Candidates::Max() {
  std::vector<Candidate>* values = &scratch_.list;
  if (whole_) {
    values = &scratch_.ordered;
    values->clear();
    Collect(BoundForTop(1), *values);
  }
  double max = -kInfinity;
  for (const Candidate& c : *values) max = std::max(max, c.logit);
  return max;
}

std::vector<Candidate>& Candidates::OrderedCopy() {
  scratch_.ordered = List();
  return scratch_.ordered;
}

}  // namespace lockstep::sampling
