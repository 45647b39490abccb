// The commands that run a model, over ranks of one process and of several.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tiny_model.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "apps/mpi_run.h"
#include "apps/program_run.h"
#include "base/file.h"
#include "gguf/safetensors.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

using test::TempFolder;
using test::TinyModel;

const std::vector<std::vector<std::string>> kSplits = {
    {"--ranks", "2"},
    {"--ranks", "3", "-t", "6"},
    {"-ts", "3,1"},
    {"-ts", "1,0"},
    {"--ranks", "2", "-sm", "graph", "-ts", "1,7"},
    {"--ranks", "2", "-sm", "layer"},
    {"-sm", "layer", "-ts", "0,1,1"},
    {"--ranks", "2", "--expert-split", "whole"}};

class RanksCommands : public ::testing::Test {
 protected:
  RanksCommands() : model_(folder_ / "tiny.gguf") {
    TinyModel model(test::OptionsFor("qwen3moe"));
    model.keys["tokenizer.chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    model.Write(model_);
    std::string text;
    for (int i = 0; i < 12; ++i) text += fmt::format("line {} of a text\n", i);
    text_ = folder_.Put("text", text);
  }

  ProgramRun Run(std::vector<std::string> arguments,
                 const std::vector<std::string>& split = {}) const {
    arguments.insert(arguments.end(), split.begin(), split.end());
    for (std::string& argument : arguments) argument = Filled(argument);
    return RunProgram({arguments.begin(), arguments.end()});
  }

  // Runs a command in a shell, where LOCKSTEP, MODEL, TEXT and DIR stand for paths, and MPI n for mpirun with so many processes.
  ShellRun Shell(std::string command) const {
    for (int processes : {1, 2, 3, 4}) {
      const std::string word = fmt::format("MPI {}", processes);
      if (const size_t at = command.find(word); at != std::string::npos)
        command.replace(at, word.size(),
                        fmt::format("{}", fmt::join(MpirunCommand(processes), " ")));
    }
    return RunShell(Filled(command));
  }
  std::string Filled(std::string text) const {
    for (const auto& [word, path] :
         {std::pair<std::string, std::string>{"LOCKSTEP", LOCKSTEP_PROGRAM},
          {"MODEL", model_},
          {"TEXT", text_},
          {"DIR", folder_ / ""}})
      for (size_t at; (at = text.find(word)) != std::string::npos;)
        text.replace(at, word.size(), path);
    return text;
  }

  TempFolder folder_;
  std::string model_, text_;
};

TEST_F(RanksCommands, GiveTheSameOnAnyRanks) {
  const std::vector<std::vector<std::string>> commands = {
      {"logits", "-m", "MODEL", "-f", "TEXT", "-o", "DIRout"},
      {"run", "-m", "MODEL", "-p", "line 3", "-n", "20", "--ignore-eos", "--temp", "0.8", "--seed",
       "3", "--no-show-timings"},
      {"ppl", "-m", "MODEL", "-f", "TEXT", "-c", "64"}};
  for (const auto& command : commands) {
    const ProgramRun expected = Run(command, {"-t", "1"});
    ASSERT_EQ(expected.code, 0) << expected.messages;
    EXPECT_NE(expected.output, "");
    for (const auto& split : kSplits) {
      const ProgramRun found = Run(command, split);
      EXPECT_EQ(found.code, 0) << found.messages;
      EXPECT_EQ(found.output, expected.output)
          << command[0] << " " << fmt::format("{}", fmt::join(split, " "));
    }
  }
}

TEST_F(RanksCommands, BenchMeasuresOnRanks) {
  const ProgramRun run =
      Run({"bench", "-m", "MODEL", "-p", "8", "-n", "2", "-r", "1", "--ranks", "2", "-t", "2"});
  EXPECT_EQ(run.code, 0) << run.messages;
  EXPECT_NE(run.output.find("tg2"), std::string::npos) << run.output;
}

TEST_F(RanksCommands, TracePrintsStepsBarriersAndCollectives) {
  const ProgramRun run =
      Run({"run", "-m", "MODEL", "-p", "line", "-n", "3", "--trace", "--ranks", "2"});
  EXPECT_EQ(run.code, 0) << run.messages;
  EXPECT_TRUE(std::regex_search(run.messages,
                                std::regex("rank 1: \\d+ steps, \\d+ barriers \\([0-9.]+ a "
                                           "layer\\), \\d+ collectives \\(2\\.\\d a layer\\), "
                                           "ran \\d+: [0-9.]+ us and \\d+ bytes each\n")))
      << run.messages;
  EXPECT_NE(run.messages.find(" ms "), std::string::npos);
}

TEST_F(RanksCommands, RefuseWhatIsNoSplitInOneLine) {
  for (const auto& [split, message] :
       std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{"--ranks", "0"}, "--ranks"},
           {{"--ranks", "2", "-sm", "none"}, "mode none: expected 1 rank, found 2"},
           {{"--ranks", "2", "-ts", "1,1,1"}, "expected 2, one for each rank, found 3"},
           {{"-ts", "0,0"}, "found only 0"},
           {{"-ts", "1,nan"}, "-ts: expected numbers"},
           {{"-ts", "1,-1"}, "-ts: expected numbers"},
           {{"-sm", "row"}, "tensor"}}) {
    const ProgramRun run = Run({"run", "-m", "MODEL", "-p", "line"}, split);
    EXPECT_EQ(run.code, 2) << message << "\n" << run.messages;
    EXPECT_NE(run.messages.find(message), std::string::npos) << run.messages;
    EXPECT_EQ(std::ranges::count(run.messages, '\n'), 1) << run.messages;
  }
}

TEST_F(RanksCommands, GiveTheSameInSeveralProcesses) {
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  const std::string expected = Run({"logits", "-m", "MODEL", "-f", "TEXT", "-o", "DIRout"}).output;
  for (const char* command : {"MPI 2 logits -m MODEL -f TEXT -o DIRout -t 1 2>&1",
                              "MPI 2 logits -m MODEL -f TEXT -o DIRout --ranks 2 2>&1",
                              "MPI 2 logits -m MODEL -f TEXT -o DIRout -sm layer 2>&1",
                              "MPI 2 logits -m MODEL -f - -o DIRout -ts 1,3 <TEXT 2>&1"}) {
    const ShellRun outcome = Shell(command);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(outcome.output, expected) << command;
  }
  EXPECT_EQ(Shell("MPI 2 ppl -m MODEL -f TEXT -c 64 2>/dev/null").output,
            Run({"ppl", "-m", "MODEL", "-f", "TEXT", "-c", "64"}).output);
  EXPECT_EQ(
      Shell("MPI 2 run -m MODEL -p line -n 9 --ignore-eos --temp 0 2>/dev/null").output,
      Run({"run", "-m", "MODEL", "-p", "line", "-n", "9", "--ignore-eos", "--temp", "0"}).output);
  EXPECT_EQ(
      Shell("printf 'line\\n' | MPI 2 chat -m MODEL -n 5 --ignore-eos --temp 0 2>/dev/null").output,
      Shell("printf 'line\\n' | LOCKSTEP chat -m MODEL -n 5 --ignore-eos --temp 0 2>/dev/null")
          .output);
  const ShellRun verify = Shell("MPI 2 verify -m MODEL --tokens 3,4,5,6 --ranks 1 2>&1");
  EXPECT_EQ(verify.code, 0) << verify.output;
  EXPECT_NE(verify.output.find("the same bits in all"), std::string::npos) << verify.output;
}

TEST_F(RanksCommands, SavedStatesGoOnOnOtherRanks) {
  const std::vector<std::string> answer = {"-n",     "30", "--ignore-eos",
                                           "--temp", "0",  "--no-show-timings"};
  const auto run = [&](std::vector<std::string> more, const std::vector<std::string>& split = {}) {
    more.insert(more.begin(), {"run", "-m", "MODEL"});
    more.insert(more.end(), answer.begin(), answer.end());
    const ProgramRun found = Run(more, split);
    EXPECT_EQ(found.code, 0) << found.messages;
    return found.output;
  };
  run({"-f", "TEXT", "--save-state", "DIRone"});
  const std::string expected =
      run({"--load-state", "DIRone", "-p", "line", "--save-state", "DIRnext"});
  for (const auto& split : kSplits) {
    run({"-f", "TEXT", "--save-state", "DIRother"}, split);
    EXPECT_EQ(ReadFile(folder_ / "other", 1 << 28), ReadFile(folder_ / "one", 1 << 28));
    EXPECT_EQ(run({"--load-state", "DIRone", "-p", "line", "--save-state", "DIRother"}, split),
              expected);
    EXPECT_EQ(ReadFile(folder_ / "other", 1 << 28), ReadFile(folder_ / "next", 1 << 28));
  }
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  const std::string rest = " -m MODEL -n 30 --ignore-eos --temp 0 2>/dev/null";
  Shell("MPI 2 run -f TEXT --save-state DIRother --ranks 2" + rest);
  EXPECT_EQ(ReadFile(folder_ / "other", 1 << 28), ReadFile(folder_ / "one", 1 << 28));
  EXPECT_EQ(Shell("MPI 2 run -p line --load-state DIRone" + rest).output, expected);
}

// Rows behind a state are those of the whole text, and the state behind them is that of the whole text, too.
TEST_F(RanksCommands, LogitsGoOnBehindAState) {
  std::vector<std::string> ids;
  for (int i = 0; i < 150; ++i) ids.push_back(std::to_string(3 + i * 37 % 290));
  const auto range = [&](size_t from, size_t to) {
    return fmt::format(
        "{}", fmt::join(ids.begin() + std::ptrdiff_t(from), ids.begin() + std::ptrdiff_t(to), ","));
  };
  const auto logits = [&](std::vector<std::string> more, const std::vector<std::string>& split) {
    more.insert(more.begin(), {"logits", "-m", "MODEL"});
    const ProgramRun found = Run(more, split);
    EXPECT_EQ(found.code, 0) << found.messages;
  };
  logits({"-o", "DIRall", "--tokens", range(0, 150), "--save-state", "DIRwhole"}, {});
  logits({"-o", "DIRsome", "--tokens", range(0, 130), "--save-state", "DIRpart"}, {});
  for (const auto& split : kSplits) {
    logits({"-o", "DIRrows", "--tokens", range(130, 150), "--load-state", "DIRpart", "--save-state",
            "DIRother"},
           split);
    const auto rows = [](const Safetensors& file) { return file.Require("logits").data; };
    const Safetensors whole = Safetensors::Open(folder_ / "all");
    const Safetensors rest = Safetensors::Open(folder_ / "rows");
    EXPECT_TRUE(std::ranges::equal(rows(rest), rows(whole).last(rows(rest).size())));
    EXPECT_EQ(rows(rest).size() * 150, rows(whole).size() * 20);
    EXPECT_EQ(ReadFile(folder_ / "other", 1 << 28), ReadFile(folder_ / "whole", 1 << 28));
  }
  const ProgramRun refused = Run({"logits", "-m", "MODEL", "-o", "DIRrows", "--tokens", "3,4",
                                  "--mtp", "--save-state", "DIRother"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.messages.find("expected one of --save-state and --mtp, found both"),
            std::string::npos)
      << refused.messages;
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  const ShellRun outcome =
      Shell("MPI 2 logits -m MODEL -o DIRmpi --load-state DIRpart --save-state DIRother --tokens " +
            range(130, 150) + " 2>&1");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(ReadFile(folder_ / "mpi", 1 << 28), ReadFile(folder_ / "rows", 1 << 28));
  EXPECT_EQ(ReadFile(folder_ / "other", 1 << 28), ReadFile(folder_ / "whole", 1 << 28));
}

TEST_F(RanksCommands, PromptCachesAreWrittenAndRead) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", "-m", "MODEL", "-f", "TEXT", "-n", "5", "--ignore-eos",
                               "--temp", "0", "--prompt-cache", "DIRcache"});
    const ProgramRun found = Run(more);
    EXPECT_EQ(found.code, 0) << found.messages;
    return found;
  };
  const ProgramRun first = run({"--prompt-cache-ro"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
  run({});
  const std::string written = ReadFile(folder_ / "cache", 1 << 28);
  const ProgramRun second = run({"--prompt-cache-ro"});
  EXPECT_EQ(second.output, first.output);
  EXPECT_EQ(ReadFile(folder_ / "cache", 1 << 28), written);
  run({"--prompt-cache-all"});
  EXPECT_NE(ReadFile(folder_ / "cache", 1 << 28), written);
}

TEST_F(RanksCommands, OfSeveralProcessesOneSpeaks) {
  if (!HasMpi()) GTEST_SKIP() << "mpirun is not installed";
  for (const auto& [command, code, text] :
       std::initializer_list<std::tuple<std::string, int, std::string>>{
           {"MPI 2 version 2>&1", 0, "lockstep"},
           {"MPI 2 imatrix -m MODEL -f TEXT -o DIRout 2>&1", 2,
            "imatrix: expected one process, found 2"},
           {"MPI 2 run -m DIRabsent -p line 2>&1", 2, "absent: "},
           {"MPI 2 run -m MODEL -f DIRabsent 2>&1", 2, "absent: "},
           {"MPI 2 run -m MODEL -p line --tmep 1 2>&1", 2, "--temp"},
           {"MPI 2 run -m MODEL -p line --ranks 2 -ts 1,1 2>&1", 2,
            "expected 4, one for each rank, found 2"}}) {
    const ShellRun outcome = Shell(command);
    EXPECT_EQ(outcome.code, code) << outcome.output;
    size_t lines = 0;
    for (size_t at = 0; (at = outcome.output.find(text, at)) != std::string::npos; ++at) ++lines;
    EXPECT_EQ(lines, 1u) << outcome.output;
  }
}

}  // namespace
}  // namespace lockstep
