#include <gtest/gtest.h>
#include <tiny_model.h>

#include <boost/json.hpp>

#include "apps/program_run.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

class VerifyCommand : public ::testing::Test {
 protected:
  VerifyCommand() { test::TinyModel((test::TinyOptions())).Write(folder_ / "tiny.gguf"); }

  ProgramRun Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"verify", "-m", folder_ / "tiny.gguf"});
    return RunProgram({arguments.begin(), arguments.end()});
  }

  test::TempFolder folder_;
};

TEST_F(VerifyCommand, PrintsOneHashForEachRun) {
  const ProgramRun run = Run({"--tokens", "3,4,5,6,7", "-ub", "2"});
  EXPECT_EQ(run.code, 0) << run.messages;
  EXPECT_NE(run.output.find("among mates"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("3 layer 2:0:1"), std::string::npos) << run.output;
  EXPECT_EQ(run.output.find("DIFFERS"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("the same bits in all "), std::string::npos) << run.output;
}

TEST_F(VerifyCommand, GivesTheHashThatLogitsGives) {
  const ProgramRun run = Run({"--tokens", "3,4,5,6,7", "--json"});
  ASSERT_EQ(run.code, 0) << run.messages;
  const boost::json::object result = boost::json::parse(run.output).as_object();
  EXPECT_TRUE(result.at("same").as_bool());
  EXPECT_GT(result.at("runs").as_array().size(), 40u);
  for (const boost::json::value& row : result.at("runs").as_array())
    EXPECT_EQ(row.at("hash"), result.at("hash"));
  const std::string model = folder_ / "tiny.gguf", out = folder_ / "out";
  const ProgramRun logits = RunProgram({"logits", "-m", model, "--tokens", "3,4,5,6,7", "-o", out});
  EXPECT_NE(logits.output.find(std::string(result.at("hash").as_string())), std::string::npos)
      << logits.output;
}

TEST_F(VerifyCommand, SaysWhatIsWrongInOneLine) {
  for (const auto& [arguments, message] :
       std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{"--tokens", "3,300"}, "expected an id below 300, found 300"},
           {{"-p", ""}, "expected at least one token, found none"},
           {{"-m", folder_ / "absent.gguf"}, "absent.gguf"}}) {
    const ProgramRun run = Run(arguments);
    EXPECT_EQ(run.code, 2) << message;
    EXPECT_NE(run.messages.find(message), std::string::npos) << run.messages;
    EXPECT_EQ(std::ranges::count(run.messages, '\n'), 1) << run.messages;
  }
}

}  // namespace
}  // namespace lockstep
