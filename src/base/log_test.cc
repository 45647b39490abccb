#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "lockstep_log_" + std::to_string(getpid());
  }
  void TearDown() override {
    ConfigureLog({});
    unlink(path_.c_str());
  }
  std::string Written() const { return ReadFile(path_, 1 << 20); }
  std::string path_;
};

TEST_F(LogTest, ShowsMessagesUpToTheLevel) {
  for (int threshold = 0; threshold <= 5; ++threshold) {
    ConfigureLog({.level = static_cast<LogLevel>(threshold), .file = path_});
    for (int level = 1; level <= 5; ++level) {
      Log(static_cast<LogLevel>(level), "threshold {} level {}", threshold, level);
      bool shown = Written().find("threshold " + std::to_string(threshold) + " level " +
                                  std::to_string(level)) != std::string::npos;
      EXPECT_EQ(shown, level <= threshold) << threshold << " " << level;
    }
    EXPECT_FALSE(LogEnabled(LogLevel::kNone));
  }
}

TEST_F(LogTest, KeepsEveryMessageOnOneLine) {
  ConfigureLog({.file = path_});
  Log(LogLevel::kInfo, "{}", std::string("a\nb\r\x1b[2J\xff {} %v"));
  EXPECT_EQ(Written(), "lockstep: a\\x0Ab\\x0D\\x1B[2J\\xFF {} %v\n");
}

TEST_F(LogTest, WritesJsonLines) {
  ConfigureLog({.json_lines = true, .file = path_});
  Log(LogLevel::kWarning, "{}", std::string("say \"hi\" \\ \n \xc3\xa9"));
  std::string line = Written();
  EXPECT_EQ(line.substr(0, 9), "{\"time\":\"");
  EXPECT_NE(line.find(R"(Z","level":"warning","text":"say \"hi\" \\ \\x0A é"})"), std::string::npos)
      << line;
}

TEST_F(LogTest, RefusesAFileThatCannotBeOpened) {
  try {
    ConfigureLog({.file = "/no/such/folder/log"});
    FAIL() << "expected a refusal";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRefused);
    EXPECT_STREQ(error.what(), "--log-file: /no/such/folder/log: No such file or directory");
  }
}

TEST_F(LogTest, WritesToStderrByDefault) {
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "hello {}", 7);
  Log(LogLevel::kDebug, "hidden");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "lockstep: hello 7\n");
}

}  // namespace
}  // namespace lockstep
