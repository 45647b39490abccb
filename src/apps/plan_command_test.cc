#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tiny_model.h>

#include <boost/json.hpp>

#include "apps/program_run.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_writer.h"
#include "gguf/temp_folder.h"

namespace lockstep {
namespace {

class PlanCommand : public ::testing::Test {
 protected:
  PlanCommand() {
    test::TinyOptions options;
    options.ff_width = 256;
    test::TinyModel(options).Write(folder_ / "tiny.gguf");
  }

  ProgramRun Run(std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (argument == "MODEL") argument = folder_ / "tiny.gguf";
      if (argument == "HOLLOW") argument = folder_ / "hollow.gguf";
    }
    return RunProgram({arguments.begin(), arguments.end()});
  }
  boost::json::object Json(std::vector<std::string> arguments) const {
    const ProgramRun run = Run(std::move(arguments));
    EXPECT_EQ(run.code, 0) << run.messages;
    return boost::json::parse(run.output).as_object();
  }

  test::TempFolder folder_;
};

const std::vector<std::string> kSpeeds = {"--bandwidth",      "100", "--peak",         "1000",
                                          "--link-bandwidth", "10",  "--link-latency", "5"};

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(PlanCommand, SaysWhatRanksHoldAndExchange) {
  const ProgramRun run = Run(With({"plan", "-m", "MODEL", "--ranks", "2"}, kSpeeds));
  EXPECT_EQ(run.code, 0) << run.messages;
  for (const char* text :
       {"rank  stage", "collectives: 2 a layer; of a token 4 reductions, 1 gathers, 0 sends",
        "decode at depth 0: at most ", "prompt of 512: at most "})
    EXPECT_NE(run.output.find(text), std::string::npos) << text << " in\n" << run.output;
  const boost::json::object json =
      Json(With({"plan", "-m", "MODEL", "-ts", "3,1", "--json"}, kSpeeds));
  EXPECT_EQ(json.at("ranks").as_array().size(), 2u);
  EXPECT_EQ(json.at("collectives_per_layer").as_int64(), 2);
  EXPECT_GT(json.at("ranks").at(0).at("weight_bytes").as_int64(),
            2 * json.at("ranks").at(1).at("weight_bytes").as_int64());
}

TEST_F(PlanCommand, PlansStages) {
  const boost::json::object json =
      Json(With({"plan", "-m", "MODEL", "--ranks", "2", "-sm", "layer", "--json"}, kSpeeds));
  EXPECT_EQ(json.at("pipeline_ranks").as_int64(), 2);
  EXPECT_EQ(json.at("sends").as_int64(), 1);
  EXPECT_EQ(json.at("ranks").at(1).at("stage").as_int64(), 1);
}

TEST_F(PlanCommand, ReadsNoWeight) {
  const ProgramRun made = Run({"synth", "--arch", "deepseek2", "--size", "671b", "--type", "q4_k_m",
                               "--hollow", "-o", "HOLLOW"});
  ASSERT_EQ(made.code, 0) << made.messages;
  struct stat info;
  ASSERT_EQ(stat((folder_ / "hollow.gguf").c_str(), &info), 0);
  EXPECT_GT(info.st_size, int64_t{300} << 30);
  EXPECT_LT(info.st_blocks * 512, int64_t{64} << 20);
  const boost::json::object json =
      Json(With({"plan", "-m", "HOLLOW", "--ranks", "3", "-c", "4096", "--json"}, kSpeeds));
  EXPECT_GT(json.at("ranks").at(0).at("weight_bytes").as_int64(), int64_t{100} << 30);
}

// The metadata in one file, and the tensors in two more, as gguf-split writes them.
TEST_F(PlanCommand, PlansAModelOfSeveralFiles) {
  const GgufFile whole = GgufFile::Open(folder_ / "tiny.gguf");
  const auto count = static_cast<uint32_t>(whole.tensor_count());
  const uint32_t begins[] = {0, 0, count / 2, count};
  for (uint16_t shard = 0; shard < 3; ++shard) {
    GgufWriter writer(folder_ / fmt::format("split-{:05}-of-00003.gguf", shard + 1));
    writer.Add("split.no", shard);
    writer.Add("split.count", uint16_t{3});
    writer.Add("split.tensors.count", static_cast<int32_t>(count));
    for (size_t i = 0; shard == 0 && i < whole.metadata().size(); ++i)
      writer.Add(whole.metadata().at(i).key, whole.metadata().at(i).value);
    uint32_t number = 0;
    for (const GgufTensor& tensor : whole.tensors()) {
      if (number >= begins[shard] && number < begins[shard + 1])
        writer.AddTensor(tensor.name, tensor.type->id,
                         std::span(tensor.dims).first(static_cast<size_t>(tensor.dims_count)));
      ++number;
    }
    writer.FinishHollow();
  }
  const std::vector<std::string> plan = With({"plan", "--ranks", "2", "--json", "-m"}, {});
  boost::json::object one = Json(With(With(plan, {"MODEL"}), kSpeeds)),
                      three =
                          Json(With(With(plan, {folder_ / "split-00001-of-00003.gguf"}), kSpeeds));
  one.erase("file");
  three.erase("file");
  EXPECT_EQ(one, three);
}

TEST_F(PlanCommand, RefusesInOneLine) {
  for (const auto& [arguments, message] :
       std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{"plan", "-m", "MODEL", "--ranks", "3", "-ts", "1,1"},
            "expected 3, one for each rank, found 2"},
           {{"plan", "-m", "MODEL", "--ranks", "2", "-sm", "none"},
            "mode none: expected 1 rank, found 2"},
           {{"plan", "-m", "MODEL", "-ts", "0,0"}, "found only 0"},
           {{"plan", "-m", "MODEL", "-sm", "row"}, "tensor"},
           {{"inspect", "-m", "MODEL", "--graph", "--plan", "0"}, "--plan"}}) {
    const ProgramRun run = Run(arguments);
    EXPECT_EQ(run.code, 2) << message;
    EXPECT_NE(run.messages.find(message), std::string::npos) << run.messages;
    EXPECT_EQ(std::ranges::count(run.messages, '\n'), 1) << run.messages;
  }
}

TEST_F(PlanCommand, InspectGivesPlacementsAsJson) {
  const boost::json::object json =
      Json({"inspect", "-m", "MODEL", "--graph", "--plan", "2", "--json"});
  EXPECT_EQ(json.at("tensor_ranks").as_int64(), 2);
  const boost::json::array& collectives = json.at("collectives").as_array();
  EXPECT_EQ(collectives.size(), 5u);
  EXPECT_EQ(collectives[0].at("name").as_string(), "blk.0.attn.reduce");
  EXPECT_EQ(collectives[0].at("bytes_per_token").as_int64(), 64 * 4);
  const auto& values = json.at("values").as_array();
  const auto q = std::ranges::find_if(
      values, [](const boost::json::value& value) { return value.at("name") == "blk.0.q"; });
  ASSERT_NE(q, values.end());
  EXPECT_EQ(q->at("placement").as_string(), "shard(g)");
  EXPECT_EQ(q->at("axes").at(1), (boost::json::object{{"name", "g"}, {"size", 2}}));
  const boost::json::object stages =
      Json({"inspect", "-m", "MODEL", "--plan", "2", "-sm", "layer", "--json"});
  EXPECT_EQ(stages.at("values").as_array().back().at("stage").as_int64(), 1);
  EXPECT_EQ(stages.at("collectives").at(0).at("kind").as_string(), "send");
}

TEST_F(PlanCommand, InspectShowsPlacementsAndCollectives) {
  const ProgramRun run = Run({"inspect", "-m", "MODEL", "--graph", "--plan", "2"});
  EXPECT_EQ(run.code, 0) << run.messages;
  for (const char* text :
       {"shard(g)", "partial(sum)", "replicate", ".reduce = reduce, ", ".gather = gather, "})
    EXPECT_NE(run.output.find(text), std::string::npos) << text << " in\n" << run.output;
  EXPECT_NE(Run({"inspect", "-m", "MODEL", "--program", "--plan", "2"}).output.find("rank 1\n"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
