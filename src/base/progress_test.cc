#include "base/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

std::string Content(FILE* file) {
  std::string content(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(content.data(), 1, content.size(), file), content.size());
  return content;
}

TEST(Progress, LineShowsShareAmountRateAndTimeLeft) {
  struct Case {
    ProgressUnit unit;
    ProgressState state;
    int width;
    std::string expected;
  };
  const Case cases[] = {
      {ProgressUnit::kItems, {0, 10, 0}, 30, "load [>            ]   0% 0/10"},
      {ProgressUnit::kItems, {5, 10, 2}, 48, "load [=======>       ]  50% 5/10 2.5/s 0:02 left"},
      {ProgressUnit::kItems, {10, 10, 2}, 36, "load [============] 100% 10/10 5.0/s"},
      {ProgressUnit::kItems, {12, 10, 2}, 36, "load [============] 100% 12/10 6.0/s"},
      {ProgressUnit::kItems, {1, 8000, 1}, 36, "load   0% 1/8000 1.0/s 2:13:19 left"},
      {ProgressUnit::kBytes, {1536, 4096, 1}, 20, "load  37% 1.5 KiB/4."},
      {ProgressUnit::kTokens, {700, 0, 2}, 80, "load 700 350 tokens/s"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ProgressLine("load", c.unit, c.state, c.width), c.expected);
  }
}

TEST(Progress, LineNeverExceedsTheWidth) {
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  for (int width : {-1, 0, 1, 5, 20, 37, 79, 200}) {
    for (ProgressState state : {ProgressState{0, 0, 0}, ProgressState{1, 3, 1e-9},
                                ProgressState{huge, huge, 1e9}, ProgressState{1, huge, 1}}) {
      EXPECT_LE(ProgressLine("a long label", ProgressUnit::kBytes, state, width).size(),
                static_cast<size_t>(std::max(width, 0)));
    }
  }
}

TEST(Progress, DrawsNothingWhereTheStreamIsNoTerminal) {
  FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Progress progress("work", 100, {.unit = ProgressUnit::kItems, .stream = file, .enabled = {}});
    EXPECT_FALSE(progress.enabled());
    for (int i = 0; i < 100; ++i) progress.Add(1);
    EXPECT_EQ(progress.redraws(), 0);
  }
  EXPECT_EQ(Content(file), "");
  std::fclose(file);
}

TEST(Progress, ShowsANewLabelWhenItIsDrawnNext) {
  FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Progress progress("first", 10, {.stream = file, .enabled = true});
    progress.SetLabel("second");
    progress.Set(1);
  }
  const std::string content = Content(file);
  EXPECT_NE(content.find("second ["), std::string::npos);
  EXPECT_EQ(content.find("first"), std::string::npos);
  std::fclose(file);
}

TEST(Progress, DrawsAtMostTenTimesASecondFromManyThreads) {
  FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  auto start = std::chrono::steady_clock::now();
  {
    Progress progress("work", 4000000,
                      {.unit = ProgressUnit::kItems, .stream = file, .enabled = true});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200000; ++i) progress.Add(1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_GE(progress.redraws(), 1);
    EXPECT_LE(progress.redraws(), 1 + static_cast<int>(seconds / 0.1) + 1);
  }
  std::string content = Content(file);
  EXPECT_NE(content.find("work ["), std::string::npos);
  EXPECT_EQ(content.substr(content.size() - 4), "\r\x1b[K") << "the line is cleared at the end";
  std::fclose(file);
}

}  // namespace
}  // namespace lockstep
