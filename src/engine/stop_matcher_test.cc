#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace lockstep {
namespace {

struct Outcome {
  std::string text;  // given out, and the tail where no stop string was met
  bool stopped = false;
  std::string met;
  bool operator==(const Outcome&) const = default;
};

// The definition: the first byte at which a stop string is complete ends the text.
Outcome Naive(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string met;
    for (const std::string& stop : stops) {
      if (!stop.empty() && std::string_view(text).substr(0, end).ends_with(stop) &&
          stop.size() > met.size()) {
        met = stop;
      }
    }
    if (!met.empty()) return {text.substr(0, end - (include ? 0 : met.size())), true, met};
  }
  return {text, false, ""};
}

// Bit i of `cuts`: whether the text is cut after byte i.
Outcome Matched(const std::string& text, uint64_t cuts, const std::vector<std::string>& stops,
                bool include) {
  StopMatcher matcher(stops, include);
  Outcome outcome;
  std::string piece;
  for (size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if ((cuts >> i & 1) != 0 || i + 1 == text.size()) {
      outcome.text += matcher.Add(piece);
      piece.clear();
    }
  }
  outcome.text += matcher.Finish();
  outcome.stopped = matcher.stopped();
  outcome.met = matcher.met();
  return outcome;
}

std::string RandomText(std::mt19937& random, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 3);
  return text;
}

TEST(StopMatcher, GivesTheSameForEveryCutOfTheText) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    const std::string text = RandomText(random, 1 + random() % 9);
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = RandomText(random, random() % 5);
    for (bool include : {false, true}) {
      const Outcome expected = Naive(text, stops, include);
      for (uint64_t cuts = 0; cuts < uint64_t{1} << (text.size() - 1); ++cuts) {
        const Outcome found = Matched(text, cuts, stops, include);
        ASSERT_EQ(found.text, expected.text) << text << ", cuts " << cuts;
        ASSERT_EQ(found.met, expected.met) << text << ", cuts " << cuts;
        ASSERT_EQ(found.stopped, expected.stopped) << text << ", cuts " << cuts;
      }
    }
  }
}

TEST(StopMatcher, MeetsTheStringThatIsCompleteFirst) {
  struct Case {
    const char* text;
    std::vector<std::string> stops;
    Outcome expected;
  };
  const Case cases[] = {
      {"xabcd", {"abcd", "bc"}, {"xa", true, "bc"}},
      {"xabc", {"bc", "abc", "c"}, {"x", true, "abc"}},
      {"aab", {"ab"}, {"a", true, "ab"}},
      {"abababc", {"ababc"}, {"ab", true, "ababc"}},
      {"abcd", {}, {"abcd", false, ""}},
      {"abcd", {""}, {"abcd", false, ""}},
      {"a||", {"||"}, {"a", true, "||"}},
      {"ab", {"abc"}, {"ab", false, ""}},
  };
  for (const Case& c : cases) {
    for (uint64_t cuts : {uint64_t{0}, ~uint64_t{0}}) {
      const Outcome found = Matched(c.text, cuts, c.stops, false);
      EXPECT_EQ(found.text, c.expected.text) << c.text;
      EXPECT_EQ(found.met, c.expected.met) << c.text;
      EXPECT_EQ(found.stopped, c.expected.stopped) << c.text;
    }
  }
}

TEST(StopMatcher, HoldsBackNoMoreThanMayBecomeAStopString) {
  StopMatcher matcher({"</s>", "q"});
  EXPECT_EQ(matcher.Add("x"), "x");
  EXPECT_EQ(matcher.Add("</think>"), "</think>");
  EXPECT_EQ(matcher.Add("y<"), "y");
  EXPECT_EQ(matcher.Add("/"), "");
  EXPECT_EQ(matcher.Add("t"), "</t");
}

TEST(StopMatcher, GivesNothingAfterAStopString) {
  StopMatcher matcher({"q"}, true);
  EXPECT_EQ(matcher.Add("aqb"), "aq");
  EXPECT_EQ(matcher.Add("cq"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

// A walk that compares every suffix again would take hours here.
TEST(StopMatcher, TakesLinearTimeForLongStopStrings) {
  constexpr size_t kLength = 200'000;
  const std::string half(kLength / 2, 'a');
  StopMatcher matcher({half + "b" + half, std::string(kLength, 'a') + "b"});
  const auto start = std::chrono::steady_clock::now();
  size_t given = 0;
  for (size_t i = 0; i < kLength; ++i) given += matcher.Add(i % 1000 == 999 ? "c" : "a").size();
  given += matcher.Finish().size();
  EXPECT_EQ(given, kLength);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace lockstep
