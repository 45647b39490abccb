// Penalties for tokens of the history: which token, how much. Internal to the sampler.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::sampling {

// The last `count` tokens of a history, all of them where `count` is -1.
std::span<const int32_t> LastTokens(std::span<const int32_t> history, int64_t count);

// How often each token occurs.
struct TokenCounts {
  std::vector<int32_t> ids;  // ascending, within [0, vocab_size)
  std::vector<int32_t> counts;
};
TokenCounts CountTokens(std::span<const int32_t> history, int64_t vocab_size);

// Token sequences at which repetitions end, for a search by first token.
class DryBreakers {
 public:
  // Empty sequences are dropped.
  explicit DryBreakers(std::vector<std::vector<int32_t>> sequences);

  // True for a token that is a breaker by itself.
  bool IsSingle(int32_t token) const;
  // How many tokens at the end of `history` lie behind its last breaker; all where it has none.
  size_t TokensSinceBreaker(std::span<const int32_t> history) const;

 private:
  std::vector<std::vector<int32_t>> sequences_;  // ascending
};

// Tokens that would continue a repetition, and how long it is already: the greatest n for which the
// last n tokens of the history, none of them a breaker, also stand before an earlier occurrence of
// the token. Only n >= min_length. Source: the DRY sampler,
// github.com/oobabooga/text-generation-webui/pull/5677. Linear in the history.
struct Repetitions {
  std::vector<int32_t> ids;  // ascending, within [0, vocab_size)
  std::vector<int64_t> lengths;
};
Repetitions FindRepetitions(std::span<const int32_t> history, const DryBreakers& breakers,
                            int64_t min_length, int64_t vocab_size);

}  // namespace lockstep::sampling
