#include "base/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {

class Interrupt : public ::testing::Test {
 protected:
  void SetUp() override {
    InstallInterruptHandler();
    ClearInterrupt();
  }
  void TearDown() override {
    ClearInterrupt();
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
  }
};

std::string MakeFile() {
  std::string path = ::testing::TempDir() + "interrupt.XXXXXX";
  int fd = mkstemp(path.data());
  EXPECT_GE(fd, 0);
  close(fd);
  return path;
}

TEST_F(Interrupt, FirstSignalOnlySetsTheFlag) {
  for (int signal : {SIGINT, SIGTERM}) {
    EXPECT_FALSE(Interrupted());
    EXPECT_NO_THROW(ThrowIfInterrupted());
    std::raise(signal);
    EXPECT_TRUE(Interrupted());
    try {
      ThrowIfInterrupted();
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInterrupted);
    }
    ClearInterrupt();
  }
}

TEST_F(Interrupt, SignalAfterClearIsTheFirstAgain) {
  for (int i = 0; i < 5; ++i) {
    std::raise(SIGINT);
    EXPECT_TRUE(Interrupted());
    ClearInterrupt();
  }
}

TEST_F(Interrupt, SecondSignalExitsWith130AndRemovesWatchedFiles) {
  std::string watched = MakeFile();
  std::string released = MakeFile();
  EXPECT_EXIT(
      {
        RemoveOnInterrupt keep(watched.c_str());
        { RemoveOnInterrupt gone(released.c_str()); }
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "^$");
  EXPECT_NE(access(watched.c_str(), F_OK), 0);
  EXPECT_EQ(access(released.c_str(), F_OK), 0);
  unlink(released.c_str());
}

TEST_F(Interrupt, SecondSignalLeavesNoHalfWrittenFile) {
  std::string folder = ::testing::TempDir() + "interrupt_folder.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_EXIT(
      {
        AtomicFile file(folder + "/out");
        file.Write("half");
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "^$");
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "the folder is empty";
}

TEST_F(Interrupt, MoreWatchedFilesThanSlotsAreAllowed) {
  std::vector<std::unique_ptr<RemoveOnInterrupt>> many;
  for (int i = 0; i < kMaxInterruptFiles + 3; ++i) {
    many.push_back(std::make_unique<RemoveOnInterrupt>("/no/such/file"));
  }
  many.clear();
  std::string path = MakeFile();
  EXPECT_EXIT(
      {
        RemoveOnInterrupt watch(path.c_str());
        std::raise(SIGINT);
        std::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(130), "^$");
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace lockstep
