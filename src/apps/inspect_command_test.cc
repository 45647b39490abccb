#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/program_run.h"
#include "gguf/gguf_writer.h"

namespace lockstep {
namespace {

class Inspect : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "inspect_" + std::to_string(getpid()) + ".gguf";
    GgufWriter writer(path_);
    writer.Add("general.architecture", "llama");
    writer.Add("general.name", std::string_view("A\n\xff model"));
    writer.Add("llama.block_count", uint32_t{2});
    writer.Add("llama.epsilon", 1e-5f);
    writer.Add("odd.nan", std::nan(""));
    writer.Add("odd.flag", true);
    std::vector<int32_t> many(100, -7);
    writer.Add("odd.many", GgufArrayData::Of<int32_t>(many));
    writer.AddTensor("a.weight", 0, {4, 3});
    writer.AddTensor("b.weight", 8, {32, 2});
    std::vector<std::byte> data(48);
    writer.Write(data);
    data.resize(68);
    writer.Write(data);
    writer.Finish();
  }
  void TearDown() override { unlink(path_.c_str()); }
  std::string path_;
};

TEST_F(Inspect, SummaryIsForPeople) {
  ProgramRun run = RunProgram({"inspect", "-m", path_});
  EXPECT_EQ(run.code, 0) << run.messages;
  for (std::string_view part :
       {"architecture        \"llama\"\n", "layers              2\n",
        "name                \"A\\x0A\\xFF model\"\n", "parameters          76 in 2 tensors\n",
        "  F32               1 tensors, 0.0 KiB\n"}) {
    EXPECT_NE(run.output.find(part), std::string::npos) << part << "\n" << run.output;
  }
}

TEST_F(Inspect, MetadataAndTensorsAreOneLineEach) {
  ProgramRun run = RunProgram({"inspect", "-m", path_, "--metadata"});
  EXPECT_EQ(run.output,
            "general.architecture (string) = \"llama\"\n"
            "general.name (string) = \"A\\x0A\\xFF model\"\n"
            "llama.block_count (uint32) = 2\n"
            "llama.epsilon (float32) = 1e-05\n"
            "odd.nan (float64) = nan\n"
            "odd.flag (bool) = true\n"
            "odd.many (array of int32) = [-7, -7, -7, -7, -7, -7, -7, -7, ... 100 in all]\n");
  run = RunProgram({"inspect", "-m", path_, "--tensors"});
  EXPECT_NE(run.output.find("a.weight                                 F32      [4, 3] "),
            std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("b.weight                                 Q8_0     [32, 2] "),
            std::string::npos);
}

TEST_F(Inspect, JsonIsOneObjectWithStableNames) {
  ProgramRun run = RunProgram({"inspect", "-m", path_, "--json", "--metadata", "--tensors"});
  EXPECT_EQ(run.code, 0) << run.messages;
  boost::json::object object = boost::json::parse(run.output).as_object();
  EXPECT_EQ(object["architecture"], "llama");
  EXPECT_EQ(object["parameters"], 76);
  EXPECT_EQ(object["tensor_bytes"], 48 + 68);
  EXPECT_EQ(object["tensor_count"], 2);
  boost::json::object& metadata = object["metadata"].as_object();
  EXPECT_EQ(metadata["general.name"], "A\n\xEF\xBF\xBD model");
  EXPECT_TRUE(metadata["odd.nan"].is_null());
  EXPECT_EQ(metadata["odd.many"].as_array().size(), 100u);
  boost::json::array& tensors = object["tensors"].as_array();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[1].as_object()["name"], "b.weight");
  EXPECT_EQ(tensors[1].as_object()["type"], "Q8_0");
  EXPECT_EQ(tensors[1].as_object()["bytes"], 68);
  EXPECT_EQ(boost::json::parse(RunProgram({"inspect", "-m", path_, "--json"}).output)
                .as_object()
                .count("metadata"),
            0u);
}

TEST_F(Inspect, UnacceptableFilesAreRefusedInOneLine) {
  struct Case {
    std::vector<std::string_view> arguments;
    std::string message;
  };
  const Case cases[] = {
      {{"inspect"}, "lockstep: inspect: expected -m, --model FILE, found none\n"},
      {{"inspect", "-m", "/no/such/file"}, "lockstep: /no/such/file: No such file or directory\n"},
      {{"inspect", "-m", "/"}, "lockstep: /: expected a file, found a directory\n"},
      {{"inspect", "-m", path_, "extra"},
       "lockstep: inspect: expected options only, found 'extra' too\n"},
  };
  for (const Case& c : cases) {
    ProgramRun run = RunProgram(c.arguments);
    EXPECT_EQ(run.code, 2);
    EXPECT_EQ(run.messages, c.message);
    EXPECT_EQ(run.output, "");
  }
}

TEST_F(Inspect, FilesCutAnywhereAreRefusedOrShown) {
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path_));
  for (int64_t cut = size - 1; cut >= 0; cut -= 3) {
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(cut));
    ProgramRun run = RunProgram({"inspect", "-m", path_, "--metadata", "--tensors"});
    // Up to 31 bytes of padding after the last tensor may be missing.
    bool harmless = cut >= size - 31 && run.code == 0;
    EXPECT_TRUE(run.code == 2 || harmless) << cut;
    EXPECT_EQ(std::count(run.messages.begin(), run.messages.end(), '\n'), harmless ? 0 : 1)
        << run.messages;
  }
}

}  // namespace
}  // namespace lockstep
