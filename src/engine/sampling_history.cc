#include "engine/sampling_history.h"

#include <algorithm>

namespace lockstep::sampling {
namespace {

// z[k]: how many of the last tokens are equal to those that end k tokens earlier. The Z-function of
// the reversed history: Gusfield, "Algorithms on strings, trees and sequences", 1.3.
std::vector<size_t> SuffixMatches(std::span<const int32_t> history) {
  size_t n = history.size();
  auto back = [&](size_t i) { return history[n - 1 - i]; };
  std::vector<size_t> z(n, 0);
  size_t begin = 0, end = 0;  // the match found so far that reaches furthest
  for (size_t k = 1; k < n; ++k) {
    size_t length = k < end ? std::min(end - k, z[k - begin]) : 0;
    while (k + length < n && back(length) == back(k + length)) ++length;
    z[k] = length;
    if (k + length > end) {
      begin = k;
      end = k + length;
    }
  }
  return z;
}

}  // namespace

std::span<const int32_t> LastTokens(std::span<const int32_t> history, int64_t count) {
  if (count < 0 || static_cast<uint64_t>(count) >= history.size()) return history;
  return history.last(static_cast<size_t>(count));
}

TokenCounts CountTokens(std::span<const int32_t> history, int64_t vocab_size) {
  std::vector<int32_t> sorted(history.begin(), history.end());
  std::erase_if(sorted, [&](int32_t id) { return id < 0 || id >= vocab_size; });
  std::sort(sorted.begin(), sorted.end());
  TokenCounts result;
  for (int32_t id : sorted) {
    if (result.ids.empty() || result.ids.back() != id) {
      result.ids.push_back(id);
      result.counts.push_back(0);
    }
    ++result.counts.back();
  }
  return result;
}

DryBreakers::DryBreakers(std::vector<std::vector<int32_t>> sequences)
    : sequences_(std::move(sequences)) {
  std::erase_if(sequences_, [](const auto& sequence) { return sequence.empty(); });
  std::sort(sequences_.begin(), sequences_.end());
  sequences_.erase(std::unique(sequences_.begin(), sequences_.end()), sequences_.end());
}

bool DryBreakers::IsSingle(int32_t token) const {
  return std::binary_search(sequences_.begin(), sequences_.end(), std::vector<int32_t>{token});
}

size_t DryBreakers::TokensSinceBreaker(std::span<const int32_t> history) const {
  auto first_less = [](const std::vector<int32_t>& sequence, int32_t token) {
    return sequence[0] < token;
  };
  for (size_t start = history.size(); start-- > 0;) {
    size_t longest = 0;
    auto it = std::lower_bound(sequences_.begin(), sequences_.end(), history[start], first_less);
    for (; it != sequences_.end() && it->front() == history[start]; ++it) {
      bool fits = it->size() <= history.size() - start;
      if (fits &&
          std::equal(it->begin(), it->end(), history.begin() + static_cast<ptrdiff_t>(start))) {
        longest = std::max(longest, it->size());
      }
    }
    if (longest > 0) return history.size() - start - longest;
  }
  return history.size();
}

Repetitions FindRepetitions(std::span<const int32_t> history, const DryBreakers& breakers,
                            int64_t min_length, int64_t vocab_size) {
  size_t limit = breakers.TokensSinceBreaker(history);
  size_t least = static_cast<size_t>(min_length);
  if (history.size() <= least || limit < least) return {};

  std::vector<std::pair<int32_t, size_t>> found;  // token, length
  std::vector<size_t> matches = SuffixMatches(history);
  for (size_t k = 1; k < history.size(); ++k) {
    size_t length = std::min(matches[k], limit);
    int32_t next = history[history.size() - k];
    if (length >= least && next >= 0 && next < vocab_size) found.emplace_back(next, length);
  }
  std::sort(found.begin(), found.end());

  Repetitions result;
  for (auto [id, length] : found) {
    if (!result.ids.empty() && result.ids.back() == id) {
      result.lengths.back() = static_cast<int64_t>(length);
    } else if (!breakers.IsSingle(id)) {
      result.ids.push_back(id);
      result.lengths.push_back(static_cast<int64_t>(length));
    }
  }
  return result;
}

}  // namespace lockstep::sampling
