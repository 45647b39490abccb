#include "engine/sampling_history.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lockstep::sampling {
namespace {

using Tokens = std::vector<int32_t>;

std::map<int32_t, int64_t> Found(const Tokens& history, const std::vector<Tokens>& breakers,
                                 int64_t min_length, int64_t vocab_size = 100) {
  Repetitions found = FindRepetitions(history, DryBreakers(breakers), min_length, vocab_size);
  std::map<int32_t, int64_t> result;
  for (size_t i = 0; i < found.ids.size(); ++i) {
    EXPECT_TRUE(i == 0 || found.ids[i - 1] < found.ids[i]);
    result[found.ids[i]] = found.lengths[i];
  }
  return result;
}

// The definition, in cubic time.
std::map<int32_t, int64_t> FoundPlainly(const Tokens& history, const std::vector<Tokens>& breakers,
                                        int64_t min_length) {
  int64_t n = static_cast<int64_t>(history.size());
  int64_t limit = n;
  for (int64_t start = n - 1; start >= 0 && limit == n; --start) {
    int64_t longest = 0;
    for (const Tokens& breaker : breakers) {
      int64_t size = static_cast<int64_t>(breaker.size());
      if (start + size > n) continue;
      if (std::equal(breaker.begin(), breaker.end(), history.begin() + start))
        longest = std::max(longest, size);
    }
    if (longest > 0) limit = n - start - longest;
  }
  std::map<int32_t, int64_t> result;
  if (n <= min_length || limit < min_length) return result;
  for (int64_t next = 1; next < n; ++next) {
    int64_t length = 0;
    while (length < std::min(next, limit) && history[next - 1 - length] == history[n - 1 - length])
      ++length;
    Tokens single = {history[next]};
    bool breaks = std::find(breakers.begin(), breakers.end(), single) != breakers.end();
    if (length < min_length || breaks) continue;
    result[history[next]] = std::max(result[history[next]], length);
  }
  return result;
}

TEST(Repetitions, MatchTheWorkedExample) {
  // a b c c b c y a b c: "a b c" came before c, "c" before b, "b c" before y.
  EXPECT_EQ(Found({1, 2, 3, 3, 2, 3, 9, 1, 2, 3}, {}, 1),
            (std::map<int32_t, int64_t>{{2, 1}, {3, 3}, {9, 2}}));
  EXPECT_EQ(Found({1, 2, 3, 3, 2, 3, 9, 1, 2, 3}, {}, 2),
            (std::map<int32_t, int64_t>{{3, 3}, {9, 2}}));
}

TEST(Repetitions, EqualTheirDefinitionOnRandomHistories) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    int32_t letters = 1 + static_cast<int32_t>(random() % 4);
    Tokens history(random() % 40);
    for (int32_t& token : history) token = static_cast<int32_t>(random() % letters);
    std::vector<Tokens> breakers(random() % 3);
    for (Tokens& breaker : breakers) {
      breaker.resize(1 + random() % 3);
      for (int32_t& token : breaker) token = static_cast<int32_t>(random() % (letters + 2));
    }
    int64_t min_length = static_cast<int64_t>(random() % 4);
    ASSERT_EQ(Found(history, breakers, min_length), FoundPlainly(history, breakers, min_length));
  }
}

TEST(Repetitions, StopAtBreakers) {
  Tokens history = {1, 2, 3, 4, 1, 2, 3};
  EXPECT_EQ(Found(history, {}, 1), (std::map<int32_t, int64_t>{{4, 3}}));
  EXPECT_EQ(Found(history, {{1}}, 1), (std::map<int32_t, int64_t>{{4, 2}}));
  EXPECT_EQ(Found(history, {{1, 2}}, 1), (std::map<int32_t, int64_t>{{4, 1}}));
  EXPECT_EQ(Found(history, {{3}}, 1), (std::map<int32_t, int64_t>{}));
  EXPECT_EQ(Found(history, {{4}}, 1), (std::map<int32_t, int64_t>{}));  // 4 itself is a breaker
}

TEST(Repetitions, TakeLinearTimeOnOneRepeatedToken) {
  Tokens history(200000, 5);
  EXPECT_EQ(Found(history, {}, 2), (std::map<int32_t, int64_t>{{5, 199999}}));
}

TEST(Repetitions, IgnoreTokensOutsideTheVocabularyAndEmptyInput) {
  EXPECT_TRUE(Found({}, {}, 0).empty());
  EXPECT_TRUE(Found({-1, 2147483647, -1, 2147483647, -1}, {{}}, 0).empty());
}

TEST(TokenCounts, CountTheLastTokensOnly) {
  Tokens history = {7, 1, 2, 1, -5, 300};
  TokenCounts all = CountTokens(LastTokens(history, -1), 300);
  EXPECT_EQ(all.ids, (Tokens{1, 2, 7}));
  EXPECT_EQ(all.counts, (Tokens{2, 1, 1}));
  TokenCounts some = CountTokens(LastTokens(history, 4), 300);
  EXPECT_EQ(some.ids, (Tokens{1, 2}));
  EXPECT_TRUE(CountTokens(LastTokens(history, 0), 300).ids.empty());
  EXPECT_EQ(LastTokens(history, 1 << 30).size(), history.size());
}

}  // namespace
}  // namespace lockstep::sampling
