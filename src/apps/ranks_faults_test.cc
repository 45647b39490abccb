// Processes of a run that die or hang: the others end soon, say so once, and leave nothing behind.
#include <gtest/gtest.h>
#include <tiny_model.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/mpi_run.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

// The longest that others may live on, and the patience with a silent process in these tests.
constexpr double kSecondsToEnd = 10;
constexpr const char* kPatience = "3";

class RanksFaults : public ::testing::Test {
 protected:
  RanksFaults() {
    if (!HasMpi()) return;
    test::TinyOptions options;
    options.context = 65536;
    test::TinyModel model(options);
    model.keys["tokenizer.chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    model.Write(folder_ / "tiny.gguf");
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "line of a long text\n";
    folder_.Put("text", text);
  }

  std::vector<std::string> Filled(std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (argument == "MODEL") argument = folder_ / "tiny.gguf";
      if (argument == "TEXT") argument = folder_ / "text";
      if (argument.starts_with("DIR")) argument = folder_ / argument.substr(3);
    }
    return arguments;
  }

  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(folder_ / "")))
      files.insert(entry.path().filename());
    return files;
  }

  test::TempFolder folder_;
};

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// What a run does when it is struck.
struct Moment {
  const char* name;
  std::vector<std::string> arguments;
  int milliseconds;  // after its processes are there
};

const std::vector<Moment> kMoments = {
    {"load", {"run", "-m", "MODEL", "-p", "a", "-n", "60000", "--ignore-eos"}, 0},
    {"decode", {"run", "-m", "MODEL", "-p", "a", "-n", "60000", "--ignore-eos"}, 800},
    {"prompt, while a file is written",
     {"logits", "-m", "MODEL", "-f", "TEXT", "-o", "DIRout"},
     800},
    {"idle", {"chat", "-m", "MODEL"}, 800}};

TEST_F(RanksFaults, AKilledProcessEndsAllInOneLine) {
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  for (const Moment& moment : kMoments) {
    for (size_t victim : {1, 0}) {
      SCOPED_TRACE(std::string(moment.name) + ", rank " + std::to_string(victim));
      const std::set<std::string> before = Files();
      MpiRun run(3, Filled(moment.arguments), folder_ / "messages");
      const std::vector<pid_t> ranks = run.AwaitRanks(3);
      ASSERT_EQ(ranks.size(), 3u);
      std::this_thread::sleep_for(std::chrono::milliseconds(moment.milliseconds));
      const std::set<std::string> shared = run.SharedMemory();
      kill(ranks[victim], SIGKILL);
      const int code = run.AwaitEnd(kSecondsToEnd);
      EXPECT_GT(code, 0);
      EXPECT_TRUE(MpiRun::Await([&] { return run.left() == 0; }, 5));
      for (const std::string& file : shared) EXPECT_FALSE(std::filesystem::exists(file)) << file;
      std::set<std::string> after = Files();
      after.erase("messages");
      // Who is killed cannot remove what it was writing, which stands under another name.
      if (victim == 0)
        std::erase_if(after, [](const std::string& name) { return name.starts_with("out."); });
      EXPECT_EQ(after, before);
      // Before the processes know each other there is nobody to notice but mpirun.
      const size_t lines = Count(run.messages(), ": lost, its process ended\n");
      EXPECT_LE(lines, 1u) << run.messages();
      if (moment.milliseconds > 0) {
        EXPECT_EQ(lines, 1u) << run.messages();
        EXPECT_EQ(Count(run.messages(), "lockstep: rank " + std::to_string(victim) + " on "), 1u)
            << run.messages();
      }
      for (const std::string& name : Files()) {
        if (!before.contains(name)) std::filesystem::remove(std::string(folder_ / name));
      }
    }
  }
}

TEST_F(RanksFaults, AStoppedProcessIsNoticed) {
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  for (size_t victim : {1, 0}) {
    MpiRun run(2,
               Filled({"run", "-m", "MODEL", "-p", "a", "-n", "60000", "--ignore-eos",
                       "--rank-timeout", kPatience}),
               folder_ / "messages");
    const std::vector<pid_t> ranks = run.AwaitRanks(2);
    ASSERT_EQ(ranks.size(), 2u);
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    kill(ranks[victim], SIGSTOP);
    EXPECT_GT(run.AwaitEnd(kSecondsToEnd), 0);
    EXPECT_TRUE(MpiRun::Await([&] { return run.left() == 0; }, 5));
    EXPECT_EQ(Count(run.messages(), "lockstep: rank " + std::to_string(victim) + " on "), 1u)
        << run.messages();
    EXPECT_EQ(Count(run.messages(), ": lost, silent for "), 1u) << run.messages();
  }
}

TEST_F(RanksFaults, CtrlCEndsAllProcesses) {
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  MpiRun run(2, Filled({"run", "-m", "MODEL", "-p", "a", "-n", "60000", "--ignore-eos"}),
             folder_ / "messages");
  ASSERT_EQ(run.AwaitRanks(2).size(), 2u);
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  run.Interrupt();
  EXPECT_GT(run.AwaitEnd(kSecondsToEnd), 0);
  EXPECT_TRUE(MpiRun::Await([&] { return run.left() == 0; }, 5));
  EXPECT_EQ(Count(run.messages(), ": lost"), 0u) << run.messages();
}

// mpirun can start each process with arguments of its own.
TEST_F(RanksFaults, ProcessesThatDifferAreRefusedByName) {
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  test::TinyOptions wide;
  wide.ff_width = 128;
  test::TinyModel(wide).Write(folder_ / "other.gguf");
  for (const auto& [second, text] :
       std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{"-m", "DIRother.gguf"}, "file of process 1: expected that of process 0, "},
           {{"-m", "MODEL", "-c", "128"},
            "--ctx-size of process 1: expected that of process 0, 0, found 128"},
           {{"-m", "MODEL", "-ctk", "q8_0"},
            "--cache-type-k of process 1: expected that of process 0, F16, found Q8_0"},
           {{"-m", "MODEL", "-sm", "layer"},
            "--split-mode of process 1: expected that of process 0, tensor, found layer"},
           {{"-m", "MODEL", "-ts", "2,1"},
            "--tensor-split of process 1: expected that of process 0, "}}) {
    std::vector<std::string> arguments = {
        "run", "-p", "a", "-n", "2", "-m", "MODEL", ":", "-n", "1", LOCKSTEP_PROGRAM,
        "run", "-p", "a", "-n", "2"};
    arguments.insert(arguments.end(), second.begin(), second.end());
    MpiRun run(1, Filled(arguments), folder_ / "messages");
    EXPECT_EQ(run.AwaitEnd(60), 2) << text;
    EXPECT_EQ(Count(run.messages(), text), 1u) << text << "\n" << run.messages();
  }
}

}  // namespace
}  // namespace lockstep
